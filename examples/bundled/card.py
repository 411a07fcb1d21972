"""The card of a bundled model."""

from __future__ import annotations

import re
from typing import Any

from sightline import __version__
from sightline.config import AlignmentConfig, RunConfig

NAMES = {"en": "English", "de": "German"}
ATTRIBUTION = "Sentences from tatoeba.org, CC BY 2.0 FR, by way of manythings.org/anki."
ROUNDS = "Earlier rounds"
UNCOUNTED = "Rounds between those and the ones counted first are not counted."
TRAINED = "trained on a CPU for"
BAD_AT = (
    "anything but short everyday sentences: news, law, technology and poetry have words and turns it has never seen",
    "long sentences; lines are split into sentences, and what is longer than its positions in pieces",
    "what a sentence alone does not say: who is meant by a pronoun, or whether strangers are spoken to",
    "figures: now and then it writes other numbers, prices, dates and times that look as right, or drops cents",
    "half hours: halb acht is half past seven, and in two sentences of five it is an hour off",
    "sentences of several clauses or things, of which it may leave one out",
    "rare names and rare words, which it may garble",
    "sentences with addresses in them, which are translated around these, and other languages",
    "knowing when it does not know: it always answers, and fluently",
)
OWN = {
    "en-de": (
        "wishes, idioms and signs that its text has once or never",
        "women with professions, whom it may call teacher or doctor as if they were men",
        "how letters begin (Sehr geehrte Herr Smith, Lieber Anna)",
        "whether a title is a subject or an object (Herr Smith, Herrn Smith), where the sentence is not a simple one",
    ),
    "de-en": (
        "wishes, idioms and signs that its text has once or never, and long compounds",
        "several titles of one (Herr Dr. Müller)",
    ),
}


def named_head(alignment: AlignmentConfig) -> str:
    """The weights that tell an alignment, in words."""
    heads = "the mean of all heads" if alignment.head is None else f"head {alignment.head}"
    return f"layer {alignment.layer}, {heads} (reading: {alignment.reading})"


def course(updates: int, minutes: float) -> str:
    """How long a run was."""
    return f"{updates:,} updates, {minutes:g} minutes"


def told_course(text: str) -> str:
    """What a card says of how long its model was trained."""
    found = re.search(rf"^- {TRAINED} (.*); Sightline", text, re.MULTILINE)
    assert found, "a card that was written here tells it"
    return found[1]


def told_rounds(text: str, counted: bool = False) -> str:
    """What the next card says of the rounds that a card is of: how much they learnt, and how much of the test they met.

    Nothing of the last of them where its text is counted with the next one's.
    """
    if carried := re.search(rf"{ROUNDS}[^\n]*", text):
        return carried[0] if counted or carried[0].endswith(UNCOUNTED) else f"{carried[0]} {UNCOUNTED}"
    if counted:
        return ""
    pairs = re.search(r"^([\d,]+) pairs of everyday", text, re.MULTILINE)
    assert pairs, "a card that was written here tells it"
    found = re.search(r"([\d,]+) have a side .* without them it has ([^\n]*)\.", text)
    if not found:
        return f"{ROUNDS} learnt from {pairs[1]} pairs."
    return (
        f"{ROUNDS} learnt from {pairs[1]} pairs; {found[1]} of the test's have a side that is, but for case and "
        "punctuation, among these, mostly among what a model wrote, and without them their model had "
        f"{found[2]}; this model was not measured without them."
    )


def card(direction: str, config: RunConfig, facts: dict[str, Any]) -> str:
    """README.md of the folder: what the model is, what it learnt from, how well, and what it is bad at."""
    source, target = (NAMES[language] for language in direction.split("-"))
    model = config.model
    verified = facts["export"].partition("## Export\n")[2].strip()
    scores = [f"- {name} {score['value']:.2f} ({score['signature']})" for name, score in facts["scores"].items()]
    met = ""
    if facts["met"]:
        without = " and ".join(f"{name} {score['value']:.2f}" for name, score in facts["scores_without_met"].items())
        met = (
            f" Of its {facts['sentences']:,} pairs {facts['met']:,} have a side that is, but for case and punctuation, "
            f"among all that were learnt, mostly among what a model wrote; without them it has {without}."
        )
    rounds = f" {facts['rounds']}" if facts["rounds"] else ""
    lines = [
        f"# {source} to {target}",
        "",
        f'A small Transformer that comes with Sightline: `echo "…" | sightline translate {direction}`.',
        "",
        f"- {model.encoder.layers} encoder and {model.decoder.layers} decoder layers, width {model.embedding}, "
        f"feed-forward {model.encoder.feedforward}, a joint vocabulary of {config.text.vocabulary:,}; int8",
        f"- {TRAINED} {facts['course']}; Sightline {__version__}",
        f"- alignments are read from {facts['head']}, chosen by links that lexicons of both directions agree on "
        f"(alignment error rate against these: {100 * facts['links']:.0f}%)",
        "",
        "## Data and licence",
        "",
        f"{facts['pairs']:,} pairs of everyday sentences, some of them made from others (small letters, no full stop, "
        f"two sentences in one, one of two, single words, other names and figures{facts['written']}). No sentence of "
        f"the test is among those that people wrote, to the letter.{met}{rounds}",
        "",
        f"Beside the corpus it learnt {facts['phrases']:,} phrases, and patterns for numerals and times, that were "
        "written for it and are under Sightline's own licence: what it knows of these it knows by heart.",
        "",
        f"{ATTRIBUTION} The sentences are under the Creative Commons Attribution 2.0 France licence; whoever passes "
        "the weights on should name the source in the same way.",
        "",
        "## Scores",
        "",
        f"On every other sentence of the Tatoeba Challenge's test of 2020-07-28, {facts['sentences']:,} of them:",
        "",
        *scores,
        "",
        "## What it is bad at",
        "",
        *(f"- {line}" for line in (*BAD_AT, *OWN[direction])),
        "",
        "## Export",
        "",
        verified,
        "",
    ]
    return "\n".join(lines)
