"""What decoding is meant to reach, and what a record shows of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Figures = Mapping[str, Any]
EQUAL = 0.2  # BLEU that a contender may lose against the one it is compared with
FLOAT32 = ("sightline-ctranslate2", "sightline-shortlist")
INT8 = ("sightline-ctranslate2-int8", "sightline-shortlist-int8")
FIRST = "first_translation_seconds"


@dataclass(frozen=True)
class Goal:
    """To be so many times as fast as `rival` in all cases of a kind, with the fastest of `ours` that loses no BLEU."""

    what: str
    wanted: float
    ours: Sequence[str]
    rival: str
    one_by_one: bool
    beam: int | None = None

    def found(self, cases: Mapping[str, Figures]) -> tuple[float, str] | None:
        """The least of the ratios, and the case that has it; None where there is nothing to compare."""
        ratios = [(ratio, title) for title, case in cases.items() for ratio in self._best(case)]
        return min(ratios, default=None)

    def _best(self, case: Figures) -> Iterator[float]:
        if case["one_by_one"] != self.one_by_one or self.beam not in (None, case["beam"]):
            return
        rival = case["contenders"].get(self.rival)
        equal = [
            ratio
            for name in self.ours
            if rival and (own := case["contenders"].get(name))
            if (own["bleu"] or 0.0) >= (rival["bleu"] or 0.0) - EQUAL
            if (ratio := own["times_transformers" if self.rival == "transformers" else "times_rival"]) is not None
        ]
        if equal:
            yield max(equal)


GOALS = (
    Goal("files, to CTranslate2 called directly, float32", 1.3, FLOAT32, "ctranslate2", False),
    Goal("files, to CTranslate2 called directly, int8", 1.3, INT8, "ctranslate2-int8", False),
    Goal("single sentences, to CTranslate2 called directly, float32", 1.0, FLOAT32, "ctranslate2", True),
    Goal("single sentences, to CTranslate2 called directly, int8", 1.0, INT8, "ctranslate2-int8", True),
    Goal("files, greedy, to transformers' `generate`", 10.0, FLOAT32 + INT8, "transformers", False, 1),
    Goal("files, beam 5, to transformers' `generate`", 6.0, FLOAT32 + INT8, "transformers", False, 5),
    Goal("files, PyTorch engine to transformers' `generate`", 3.0, ("sightline-pytorch",), "transformers", False),
)


def reached(results: Figures) -> list[dict[str, Any]]:
    """Each goal with what was found, the least over its cases; goals that this record says nothing of are left out."""
    rows: list[dict[str, Any]] = []
    for goal in GOALS:
        if (found := goal.found(results["cases"])) is not None:
            ratio, case = found
            rows.append({"goal": goal.what, "wanted": goal.wanted, "found": ratio, "where": case})
    firsts = {name: one[FIRST] for name, one in results["contenders"].items() if name in FLOAT32 + INT8}
    if firsts:
        slowest = max(firsts, key=firsts.__getitem__)
        what = "seconds from a cold process to a first translation"
        rows.append({"goal": what, "wanted": 1.0, "found": firsts[slowest], "where": slowest, "at_most": True})
    return [{**row, "met": _met(row)} for row in rows]


def _met(row: Figures) -> bool:
    return bool(row["found"] <= row["wanted"] if row.get("at_most") else row["found"] >= row["wanted"])


def told(row: Figures) -> list[str]:
    """A row of a table: goal, wanted, found, where, met."""
    wanted = f"{'at most' if row.get('at_most') else 'at least'} {row['wanted']:g}"
    return [row["goal"], wanted, f"{row['found']:.2f}", row["where"], "yes" if row["met"] else "**no**"]


HEADS = ("goal", "wanted", "found", "where", "met")
