"""Documents made up so that it is known where to look.

    python benchmarks/documents.py [--only keyword,chain] [--threads N]

keyword  One word, in one sentence of a document of random words, decides the output. Sentences' vectors by attention to
         their words, beside their mean; and words themselves, weighed by their sentences, beside all words alike. In
         short and in long documents: how many updates it takes, and how often the weights are highest where the word
         stands, among sentences and among its sentence's words.
chain    A story of arrows, a -> b and b -> c, d -> e and e -> f, and a question that asks where two of them lead from
         a, read in one hop and in two. Who knows only what no arrow leads on from is right every second time.

Training ends when nearly all are right: the fewer updates, the better.
Results go to `benchmarks/results/documents.json`, arm by arm, each with the command that makes it again, and what a
model saw of a short document to `docs/attention/heat-maps`.
Shapes: B documents, N sentences, W words of each, S = N (W + 1) tokens.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from torch import Tensor

from benchmarks.mechanisms.pictures import PICTURES, picture_name, write_picture
from benchmarks.speed.common import command, machine
from sightline.attention.capture import capture
from sightline.batch import Batch, Tokens
from sightline.config import build_config, merge
from sightline.models import EncoderDecoder, build_model
from sightline.plot import Heatmap
from sightline.text import EOS, Sizes

RESULTS = Path(__file__).parent / "results" / "documents.json"
MARKER, KEYWORDS, FILLERS = 4, 40, 40
FIRST_FILLER = MARKER + 1 + KEYWORDS
ENTITIES, ARROWS = 6, 4
BATCH, RATE, TESTED = 32, 3e-3, 500
CHECKED, GOOD = 20, 99.0
WIDEST = 40  # words of a document that is drawn

Result = dict[str, Any]


def made(recipe: str, vocabulary: int, changes: dict[str, Any]) -> EncoderDecoder:
    """A small model of documents, from one seed."""
    torch.manual_seed(1)
    values = {
        "text": {"sentence_marker": "|||"},
        "model": {"embedding": 32, "dropout": 0.0, "decoder": {"width": 32, "layers": 1}},
    }
    config = build_config(merge(values, {"model": changes}), recipe)
    model = build_model(config.model, Sizes(vocabulary, vocabulary, True, marker=MARKER))
    assert isinstance(model, EncoderDecoder)
    return model


def ended(rows: Tensor) -> Tokens:
    """Rows `(B, S)` of equal length, with their end symbol."""
    tokens = torch.cat([rows, torch.full_like(rows[:, :1], EOS)], 1)
    return Tokens(tokens, torch.ones_like(tokens, dtype=torch.bool))


def learn(model: EncoderDecoder, draw: Callable[[int], Batch], updates: int) -> int:
    """Trains until nearly all new documents are answered rightly, and tells after how many updates that was."""
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    for update in range(updates):
        if update % CHECKED == 0 and right(model, draw(TESTED)) >= GOOD:
            return update
        total, count = model.loss(draw(BATCH))["cross_entropy"]
        optimizer.zero_grad()
        (total / count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return updates


@torch.no_grad()
def right(model: EncoderDecoder, batch: Batch) -> float:
    """The percentage of documents whose first word is foretold rightly."""
    assert batch.targets is not None
    log_probs = model.output.log_probs(model.eval().read(batch).features)
    model.train()
    return round(100 * float((log_probs[:, 0].argmax(-1) == batch.targets.ids[:, 0]).double().mean()), 1)


# A word that decides


def planted(sentences: int, words: int, count: int) -> tuple[Batch, Tensor, Tensor]:
    """Documents of random words with one keyword each, the targets these; the sentence and the place it stands at."""
    tokens = torch.randint(FIRST_FILLER, FIRST_FILLER + FILLERS, (count, sentences, words))
    keyword = torch.randint(MARKER + 1, FIRST_FILLER, (count,))
    sentence, place = torch.randint(sentences, (count,)), torch.randint(words, (count,))
    tokens[torch.arange(count), sentence, place] = keyword
    marked = torch.cat([tokens, torch.full((count, sentences, 1), MARKER)], 2).flatten(1)[:, :-1]
    return Batch((ended(marked),), ended(keyword[:, None])), sentence, place


READER: dict[str, Any] = {"width": 16, "layers": 1}
DOCUMENT = {"encoder": {"kind": "hierarchical", **READER}}
KINDS: dict[str, dict[str, Any]] = {
    "attention": {**DOCUMENT, "documents": {"pooling": "attention"}},
    "mean": {**DOCUMENT, "documents": {"pooling": "mean"}},
    "words by their sentences": {**DOCUMENT, "documents": {"memory": "words"}},
    "all words alike": {"encoder": {"kind": "gru", **READER}},
}


def keyword(kind: str, sentences: int, words: int, updates: int = 400, picture: Path | None = None) -> Result:
    """How a model of one kind learns to answer with the keyword; what it sees of one document is drawn."""
    model = made("bahdanau", FIRST_FILLER + FILLERS, KINDS[kind])
    needed = learn(model, lambda count: planted(sentences, words, count)[0], updates)
    batch, sentence, place = planted(sentences, words, TESTED)
    answers = right(model, batch)
    weights = looks(model.eval(), batch, sentences)
    best = weights.sum(-1).argmax(-1)
    peaks = {
        "sentence": best == sentence,
        "word": weights[torch.arange(TESTED), sentence].argmax(-1) == place,
    }
    if picture is not None and weights[0].numel() <= WIDEST:
        write_picture(picture, seen(batch, weights))
    return {
        "right": answers,
        **{f"highest at the {name}": round(100 * float(found.double().mean()), 1) for name, found in peaks.items()},
        "updates": needed,
    }


@torch.no_grad()
def looks(model: EncoderDecoder, batch: Batch, sentences: int) -> Tensor:
    """How much of the answer comes from each word and from what ends its sentence, `(B, N, W + 1)`."""
    with capture(model, where=lambda name: name == "decoder.attention") as maps:
        model.read(batch)
    weights = maps["decoder.attention"][:, 0, 0]
    if weights.size(1) == sentences:  # of sentences, each of which is made of its words
        spans = model.encode(batch).spans
        assert spans is not None
        return weights[..., None] * spans.shares.unflatten(1, (sentences, -1))
    return weights.unflatten(1, (sentences, -1))


def seen(batch: Batch, weights: Tensor) -> Heatmap:
    """The first document: the weights of each sentence's words, and in the last row of all, as the answer is due."""
    assert batch.targets is not None
    (source,) = batch.sources
    assert isinstance(source, Tokens)
    ids, answer = source.ids[0].tolist(), int(batch.targets.ids[0, 0])
    own = weights[0]
    within = torch.block_diag(*(own / own.sum(-1, keepdim=True)))
    rows = [f"sentence {number + 1}" for number in range(len(own))]
    table = torch.cat([within, own.flatten()[None]]).double().numpy()
    return Heatmap([*map(named, ids)], [*rows, named(answer)], table, links=[(ids.index(answer), len(own))])


def named(id: int) -> str:
    """A word of these documents."""
    if id < FIRST_FILLER:
        return {MARKER: "|||", EOS: "end"}.get(id) or f"KEY {id - MARKER}"
    return f"word {id - FIRST_FILLER + 1}"


# Arrows that lead on


def arrows(count: int) -> Batch:
    """Stories of two chains, a -> b -> c and d -> e -> f, their arrows in any order, and questions where a leads."""
    ends = torch.stack([torch.randperm(ENTITIES) for _ in range(count)])
    first = MARKER + 1
    facts = torch.stack([first + ends[:, [0, 1, 3, 4]], first + ENTITIES + ends[:, [1, 2, 4, 5]]], -1)  # from, to
    order = torch.stack([torch.randperm(ARROWS) for _ in range(count)])
    told = facts.gather(1, order[..., None].expand(-1, -1, 2))
    story = torch.cat([told, torch.full((count, ARROWS, 1), MARKER)], 2).flatten(1)
    question, answer = first + 2 * ENTITIES + ends[:, :1], first + ends[:, 2:3]
    return Batch((ended(torch.cat([story, question], 1)),), ended(answer))


def chain(hops: int, updates: int = 1500, picture: Path | None = None) -> Result:
    """How a model of so many hops learns where two arrows lead; where it looks in one story is drawn."""
    documents = {"hops": hops, "word_order": False}
    model = made("seq2seq", MARKER + 1 + 3 * ENTITIES, {"encoder": {"kind": "hops"}, "documents": documents})
    needed = learn(model, arrows, updates)
    result = {"right": right(model, arrows(TESTED)), "updates": needed}
    if picture is not None:
        write_picture(picture, followed(model.eval(), arrows(1)))
    return result


@torch.no_grad()
def followed(model: EncoderDecoder, story: Batch) -> Heatmap:
    """A row for each hop over the arrows of one story; the question stands before the first."""
    with capture(model, where=lambda name: ".hops." in name) as maps:
        model.read(story)
    rows = torch.cat([weights[0, 0, :, :ARROWS] for weights in maps.values()]).double().numpy()
    (source,) = story.sources
    assert isinstance(source, Tokens)
    ids = [id - MARKER - 1 for id in source.ids[0].tolist()]
    told = [f"{letter(ids[3 * number])} → {letter(ids[3 * number + 1])}" for number in range(ARROWS)]
    return Heatmap(told, [f"look {hop + 1}" for hop in range(len(rows))], rows, f"{letter(ids[3 * ARROWS])} → ? → ?")


def letter(entity: int) -> str:
    """The same for one that an arrow begins at, leads to, or is asked for."""
    return "ABCDEF"[entity % ENTITIES]


SIZES = {"short": (3, 5), "long": (3, 36)}
TASKS: dict[str, dict[str, Callable[..., Result]]] = {
    "keyword": {f"{size} documents, {kind}": partial(keyword, kind, *SIZES[size]) for size in SIZES for kind in KINDS},
    "chain": {f"{hops} hops": partial(chain, hops) for hops in (1, 2)},
}


def main(arguments: Iterable[str] | None = None) -> None:
    """Runs the chosen tasks and records them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(TASKS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--pictures", type=Path, default=PICTURES)
    options = parser.parse_args(None if arguments is None else [*arguments])
    torch.set_num_threads(options.threads)
    for task in options.only.split(","):
        for name, measure in TASKS[task].items():
            began = time.monotonic()
            picture = options.pictures / f"{picture_name(RESULTS.name, [task, name])}.svg"
            result = {
                **measure(picture=picture),
                "seconds": round(time.monotonic() - began),
                "threads": options.threads,
            }
            record(options.results, task, name, {**result, "command": command(), "machine": machine()})
            print(f"{task}, {name}: {json.dumps(result)}", flush=True)


def record(path: Path, task: str, name: str, result: Result) -> None:
    """Puts one arm's result into the file, the others staying as they are."""
    everything = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    arms = {**everything.get(task, {}), name: result}
    everything[task] = {arm: arms[arm] for arm in TASKS[task] if arm in arms}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(everything, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
