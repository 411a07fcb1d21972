"""The main job, once, on the bundled corpus: train, score, translate, look."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from sightline import metrics
from sightline.alignments import align_corpus, draw
from sightline.config import RunConfig, build_config
from sightline.console import bar, program
from sightline.data import bundled, read_pairs
from sightline.evaluate import evaluate
from sightline.files import read_lines, write_text
from sightline.folder import WEIGHTS
from sightline.gallery import heatmap
from sightline.plot import terminal
from sightline.training.checkpoint_names import CHECKPOINTS, latest
from sightline.training.loop import Host
from sightline.training.progress import progress_for, told_minutes
from sightline.training.run import train
from sightline.translator import Translator, load

SENTENCES = (
    "Where is the station?",
    "I don't know what to say.",
    "She has two children.",
    "Tom is waiting for you.",
    "Can you help me?",
    "We want to go home.",
    "It is very cold today.",
    "I have never seen him before.",
    "What time is it?",
    "He likes to read books.",
)
# Updates after which the sentences above come out well: half of what two ordinary processors make in the time.
ENOUGH = 1_000
SHOWN = "Tom doesn't want to go to school today."


def demo_config(minutes: float) -> RunConfig:
    """A small Transformer whose learning rate falls to zero as the minutes run out."""
    half = {"heads": 4, "feedforward": 512}
    values = {
        "text": {"tokenizer": "bpe", "vocabulary": 4000},
        "data": {"pairs": str(bundled("train")), "valid_pairs": str(bundled("valid")), "batch_tokens": 1000},
        "model": {"embedding": 192, "encoder": {**half, "layers": 3}, "decoder": {**half, "layers": 2}},
        "training": {
            "max_minutes": minutes,
            "learning_rate": 2e-3,
            "warmup": 200,
            "validate_every": 500,
            "validate_bleu": 200,
        },
    }
    return build_config(values, "transformer")


def run_demo(folder: Path, minutes: float, say: Callable[[str], None]) -> None:
    """Does what is not done yet in `folder`, and shows the result; `say` is told what happens."""
    model = folder / "model"
    prepare(model, minutes, say)
    translator = load(model)
    report(translator, model / "scores.txt", say)
    print("\nA few sentences:\n")
    width = max(len(sentence) for sentence in SENTENCES)
    for one in translator.translate(SENTENCES, align=False):
        print(f"  {one.source:<{width}}  →  {one.text}")
    show(translator, folder / "alignment.html")
    print(f"\nTranslate something yourself:  echo 'Good morning!' | {program()} translate {model}")


def prepare(model: Path, minutes: float, say: Callable[[str], None]) -> None:
    """Trains the demo's model, goes on with it, or finds it done."""
    begun = latest(model / CHECKPOINTS)
    done = model / "done"
    if done.exists() and (model / WEIGHTS).exists():
        say(f"{model} is trained already, with {done.read_text().strip()} (delete the folder to train anew)")
        return
    if begun is not None:
        say(f"{model} was begun: going on from {begun.name}")
    else:
        say(f"training a small English-German Transformer for {told_minutes(minutes)} on {bundled('train').name}")
    config = demo_config(minutes)
    progress = progress_for(metric=config.training.metric)
    trained = train(config, model, begun is not None, Host(progress), say)
    if trained.result.interrupted:
        say("saved; run the same command again to go on")
        raise KeyboardInterrupt
    updates = trained.result.steps
    if updates < ENOUGH:
        longer = math.ceil(2 * minutes * ENOUGH / max(updates, 1))
        say(
            f"only {updates:,} updates in {told_minutes(minutes)}, so the model is weak; for a better one delete "
            f"{model} and run: {program()} demo train --output {model.parent} --minutes {longer}"
        )
    write_text(done, f"{updates} updates\n")


def report(translator: Translator, path: Path, say: Callable[[str], None]) -> None:
    """Scores on the held-out test sentences, from the file that an earlier run wrote if there is one."""
    if not path.exists():
        pairs = read_pairs(None, None, bundled("test"))
        say(f"translating {len(pairs):,} held-out test sentences")
        with bar(len(pairs), "translating") as watch:
            found = list(translator.stream([pair.source for pair in pairs], watch=watch))
        result = evaluate(translator, pairs, found)
        lines = [described("BLEU", result.bleu), described("chrF", result.chrf)]
        write_text(path, "".join(f"{line}\n" for line in lines))
    print("\nOn held-out sentences:\n")
    for line in read_lines(path):
        print(f"  {line}")


def described(name: str, score: metrics.Score) -> str:
    """A score with its signature."""
    return f"{name} {score.value:.1f}  ({score.signature})"


def show(translator: Translator, path: Path) -> None:
    """Draws one alignment in the terminal, and all sentences into a page."""
    sources = [SHOWN, *SENTENCES]
    aligned = list(align_corpus(translator, sources))
    print("\nWhere the model looked while it wrote each word:\n")
    print(terminal(heatmap(aligned[0], translator.config.alignment)))
    draw([translator], [aligned], sources, path, None, None)
    print(f"\nAll layers and heads, to explore in a browser: {path}")
