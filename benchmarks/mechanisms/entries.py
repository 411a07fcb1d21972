"""The atlas as data: pages, rows of the index and arms, read from `texts/`.

A page's configuration is its arm's: what the page shows is what was trained, on top of what all arms share and of the
sizes of its recipe. Its twin is another page's arm, or one of `texts/arms.yaml`, and differs in what the page is about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sightline.config import RunConfig, build_config, merge

TEXTS = Path(__file__).parent / "texts"
# The order of the index.
FAMILIES = (
    "decoders",
    "scores",
    "clues",
    "losses",
    "choices",
    "sources",
    "transformers",
    "documents",
    "outputs",
)

Values = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """A row of the index: `config` are keys, some with their value, `paper` are citations."""

    mechanism: str
    config: tuple[str, ...]
    code: tuple[str, ...]
    tests: tuple[str, ...]
    paper: tuple[str, ...]

    def named(self) -> set[str]:
        """The keys without values."""
        return {name.partition(":")[0] for name in self.config}


@dataclass(frozen=True)
class Measured:
    """Figures of another benchmark: where they lie in its record, by what they are called on the page."""

    record: str
    command: str
    about: str
    rows: Mapping[str, list[str]]
    columns: Mapping[str, list[str]]


@dataclass(frozen=True)
class Page:
    """What is told of a mechanism; what is measured of it comes from records.

    `arm` was trained for the page and `twin` beside it, which `lacks` says how it differs; or figures are `measured`
    elsewhere, by one benchmark or several; or both; or `unmeasured` tells why there are none.
    """

    name: str
    title: str
    problem: str
    equation: str
    avoid: str
    rows: tuple[Row, ...]
    config: Values | None = None
    command: str | None = None
    arm: str | None = None
    twin: str | None = None
    lacks: str = ""
    measured: tuple[Measured, ...] = ()
    unmeasured: str | None = None

    @property
    def code(self) -> list[str]:
        """The files of all its rows, each once."""
        return [*dict.fromkeys(file for row in self.rows for file in row.code)]

    @property
    def tests(self) -> list[str]:
        """The same of tests."""
        return [*dict.fromkeys(file for row in self.rows for file in row.tests)]

    @property
    def papers(self) -> list[str]:
        """The same of citations."""
        return [*dict.fromkeys(paper for row in self.rows for paper in row.paper)]


@dataclass(frozen=True)
class Atlas:
    """All of it: pages and arms by their names, rows without a page, and for each citation its title and address."""

    pages: Mapping[str, Page]
    arms: Mapping[str, Values]
    others: tuple[Row, ...]
    papers: Mapping[str, tuple[str, str]]


def _row(values: Mapping[str, Any]) -> Row:
    paper = values["paper"]
    cited = [one.strip() for one in paper.split(";") if one] if isinstance(paper, str) else paper
    lists = {name: tuple(values[name]) for name in ("config", "code", "tests")}
    return Row(mechanism=values["mechanism"], paper=tuple(cited), **lists)


def _page(name: str, values: Mapping[str, Any]) -> Page:
    texts = {key: " ".join(values[key].split()) for key in ("problem", "avoid", "unmeasured") if key in values}
    trained, measured = "twin" in values, values.get("measured", [])
    return Page(
        name=name,
        arm=values.get("arm", name) if trained else None,
        **{key: values[key] for key in ("title", "config", "command", "twin", "lacks") if key in values},
        **texts,
        equation=values["equation"].rstrip(),
        measured=tuple(Measured(**one) for one in ([measured] if isinstance(measured, dict) else measured)),
        rows=tuple(_row(row) for row in values["rows"]),
    )


def read_atlas(folder: Path = TEXTS) -> Atlas:
    """Reads `texts/`."""

    pages = {name: _page(name, values) for family in FAMILIES for name, values in _read(folder, family).items()}
    shared = _read(folder, "arms")
    own = {page.name: page.config or {} for page in pages.values() if page.arm == page.name}
    arms = {name: _sized(config, shared) for name, config in {**own, **shared["twins"]}.items()}
    papers = {name: (title, address) for name, (title, address) in _read(folder, "papers").items()}
    return Atlas(pages, arms, tuple(_row(row) for row in _read(folder, "others")), papers)


def sized(config: Values, folder: Path = TEXTS) -> Values:
    """`config`, which names a recipe, on top of what all arms share and of the sizes of its recipe."""
    return _sized(config, _read(folder, "arms"))


def _sized(config: Values, shared: Values) -> Values:
    return merge(merge(shared["common"], shared["recipes"][config["model"]["recipe"]]), config)


def _read(folder: Path, name: str) -> Any:
    return yaml.safe_load((folder / f"{name}.yaml").read_text(encoding="utf-8"))


def resolved(values: Values) -> RunConfig:
    """The whole configuration of an arm, checked."""
    return build_config(values, where="atlas")
