"""T2R: decoding speed and BLEU of a Transformer before and after its decoder was made recurrent.

    python benchmarks/t2r.py [--minutes 8] [--model FOLDER] [--pairs FILE] [--test FILE] [--runs DIR] [--threads 2]

A Transformer is trained on the bundled corpus (or taken from --model), then converted twice, its self-attention alone
and its attention to the source too, each for a third of those minutes; their twin is trained on just as long, from the
same weights and at the same rate, as it is. All are scored on the test pairs with beam 5 by `sightline evaluate`. The
speed of a step is measured apart from the text, with sentences that go on up to given lengths: a cache makes later
steps slower, sums do not. With 8 minutes it takes about 19 on two processors.
Results go to `benchmarks/results/t2r.json`, with a figure beside it, and heat-maps to `docs/attention/heat-maps`.
Shapes: B sentences.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.mechanisms.pictures import PICTURES, picture_name
from benchmarks.speed.common import machine, say, without_paths

RESULTS = Path(__file__).parent / "results"
RECORD = "t2r.json"
LENGTHS = (32, 64, 128, 256, 512, 1024)
SOURCE = 24  # tokens of the sentences whose steps are measured
BATCH = 16
BEFORE = "softmax"
ARMS = {
    "softmax, trained on": ("--set", "model.decoder.attention=full"),  # a conversion that changes nothing
    "recurrent self-attention": (),
    "recurrent self- and cross-attention": ("--cross",),
}


def sightline(arguments: Sequence[str], threads: int) -> str:
    """Runs a command as a user would; its progress goes to stderr."""
    command = [sys.executable, "-m", "sightline", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout


def score(model: Path, test: Path, threads: int) -> dict[str, Any]:
    """BLEU, chrF and perplexity on the test pairs."""
    found: dict[str, Any] = json.loads(sightline(["evaluate", str(model), "--pairs", str(test), "--json"], threads))
    return found


def steps(model: Path, lengths: Sequence[int], threads: int, batch: int = BATCH) -> list[dict[str, Any]]:
    """Target tokens a second of greedy steps up to each length, and the numbers that each sentence carries there."""
    import torch

    from sightline.batch import Batch, pad
    from sightline.folder import load_folder
    from sightline.text import EOS

    torch.set_num_threads(threads)
    network = load_folder(model).model
    generator = torch.Generator().manual_seed(1)
    size = network.source_embedding.weight.size(0)
    rows = torch.randint(EOS + 1, size, (batch, SOURCE), generator=generator).tolist()
    found = []
    with torch.inference_mode():
        state = network.start(Batch((pad([[*row, EOS] for row in rows], 0),)))
        tokens = torch.full((batch,), network.bos)
        start, done = time.perf_counter(), 0
        for length in lengths:
            for _ in range(length - done):
                step = network.step(tokens, state)
                tokens, state = step.log_probs.argmax(-1), step.state
            elapsed = time.perf_counter() - start
            own = sum(value.numel() for value in state.own.values()) // batch
            speed = batch * (length - done) / elapsed
            found.append({"length": length, "tokens_per_second": round(speed, 1), "numbers_a_sentence": own})
            start, done = time.perf_counter(), length
    return found


def measure(model: Path, test: Path, lengths: Sequence[int], threads: int) -> dict[str, Any]:
    """All that is told of one model."""
    result = {"scores": score(model, test, threads), "steps": steps(model, lengths, threads)}
    last = result["steps"][-1]
    say(f"{model.name}: {result['scores']['bleu']}, {last['tokens_per_second']} tokens/s at {last['length']} tokens")
    return result


def look(model: Path, name: str, pictures: Path) -> None:
    """Draws where an arm's decoder looks in two sentences that nobody was trained on."""
    from benchmarks.mechanisms.material import SHOWN
    from benchmarks.mechanisms.running import draw as draw_looks
    from sightline.translator import load

    draw_looks(load(model, engine="pytorch"), SHOWN, pictures / f"{picture_name(RECORD, ['arms', name])}.svg")


def draw(arms: dict[str, Any], path: Path) -> None:
    """Speed and state against length."""
    from sightline.plot import growth_figure

    panels = {
        label: {name: [(row["length"], row[key]) for row in arm["steps"]] for name, arm in arms.items()}
        for label, key in (("tokens a second", "tokens_per_second"), ("numbers carried", "numbers_a_sentence"))
    }
    growth_figure(panels, path, "target length", "Decoding before and after conversion")


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains, converts, measures, records and draws."""
    from sightline.data import bundled

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--model", type=Path, help="a trained Transformer; else one is trained")
    parser.add_argument("--pairs", type=Path, default=bundled("train"), help="to train and convert on")
    parser.add_argument("--test", type=Path, default=bundled("test"))
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    parser.add_argument("--set", action="append", default=[], help="a key of the config, for the training")
    parser.add_argument("--runs", type=Path, default=Path("runs/t2r"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--pictures", type=Path, default=PICTURES)
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(given)
    model, lengths = options.model, [int(each) for each in options.lengths.split(",")]
    if model is None:
        model = options.runs / "transformer"
        command = ["train", "--output", str(model), "--pairs", str(options.pairs)]
        command += ["--max-minutes", str(options.minutes)]
        sightline(command + [word for each in options.set for word in ("--set", each)], options.threads)
    arms = {BEFORE: measure(model, options.test, lengths, options.threads)}
    look(model, BEFORE, options.pictures)
    for name, extra in ARMS.items():
        output = options.runs / name.replace(", ", "-").replace(" ", "-")
        command = ["convert", str(model), "--to", "rnn", "--pairs", str(options.pairs), "--output", str(output), *extra]
        sightline([*command, "--max-minutes", str(options.minutes / 3)], options.threads)
        arms[name] = measure(output, options.test, lengths, options.threads)
        look(output, name, options.pictures)
    options.results.mkdir(exist_ok=True, parents=True)
    result = {
        "command": ["python", "benchmarks/t2r.py", *without_paths(given)],
        "machine": machine(),
        "minutes": options.minutes,
        "threads": options.threads,
        "batch": BATCH,
        "arms": arms,
    }
    (options.results / RECORD).write_text(json.dumps(result, indent=1) + "\n")
    draw(arms, options.results / "t2r.png")


if __name__ == "__main__":
    main()
