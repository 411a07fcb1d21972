"""The command that aligns words."""

from __future__ import annotations

import sys
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sightline.cli_options import GoldFromOne, Model, Pairs, Source, read_given, source_name
from sightline.console import bar, say, watched
from sightline.errors import SightlineError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sightline.both_ways import BothWays
    from sightline.data import Pair
    from sightline.forced import Forced
    from sightline.translator import Translator


def align(
    model: Model,
    source: Source = None,
    target: Annotated[
        Path | None, typer.Option(help="Target sentences; without them each model shows its own translation.")
    ] = None,
    pairs: Pairs = None,
    compare: Annotated[
        list[Path] | None,
        typer.Option(help="With --html: one more model beside the first; repeatable.", metavar="MODEL"),
    ] = None,
    gold: Annotated[
        Path | None, typer.Option(help="Hand-made links (Pharaoh lines): prints the alignment error rate.")
    ] = None,
    gold_from_one: GoldFromOne = False,
    choose: Annotated[
        bool,
        typer.Option(
            "--choose", help="With --gold: find the best layer, head and reading, and keep them in the model."
        ),
    ] = False,
    reading: Annotated[
        str | None, typer.Option(help="Rows to read: those that predict a token (predicts) or read it (consumes).")
    ] = None,
    backward: Annotated[
        Path | None,
        typer.Option(
            help="A model that translates the other way: links are those of both (pictures: of the first).",
            metavar="MODEL",
        ),
    ] = None,
    join: Annotated[
        str | None, typer.Option(help="With --backward: intersection (the default), union, or grow-diag, in between.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write an interactive page.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Write heat-maps as SVG.")] = None,
    png: Annotated[Path | None, typer.Option(help="Write heat-maps as PNG.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Draw heat-maps in the terminal instead of links.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Sentences that are drawn, from the first.")] = 20,
) -> None:
    """Align words: Pharaoh lines (source-target, from 0) on standard output, pictures on request."""
    from sightline.alignments import Gold, align_corpus, choose_head, draw, measure
    from sightline.files import check_writable
    from sightline.forced import read_alignment
    from sightline.links import to_pharaoh
    from sightline.translator import load

    refuse_alone(choose, gold, compare, html, join, backward)
    refuse_together(backward, choose, show)
    check_writable(html, svg, png)
    translators = [load(path) for path in [model, *(compare or [])]]
    translators[0].check_attention()
    if reading is not None:
        translators = [read_by(translator, reading) for translator in translators]
    for translator in translators[1:]:
        if (count := translator.config.model.source_count) != translators[0].config.model.source_count:
            raise SightlineError(f"{translator.files.path}: reads {count} sources, not as many as {model}")
    alone = bool(source) and target is None and pairs is None
    given = read_sources(source or [], translators[0]) if alone else read_given(source, target, pairs, translators[0])
    names = (source_name(source, pairs), str(target or pairs))
    if gold is not None and translators[0].config.model.source_count > 1:
        raise SightlineError("--gold: hand-made links tell of one source only, and this model reads several")
    hand_made = None if gold is None else Gold(gold, with_targets(given, "--gold"), gold_from_one)
    both = None if backward is None else read_both(translators[0], backward, reading, join)
    back = None if both is None else both.look_back(with_targets(given, "--backward"), *names)
    with bar(len(given), "aligning", show=not sys.stdout.isatty()) as watch:
        seen: Iterable[Forced] = watched(align_corpus(translators[0], given, *names), watch)
        if hand_made is not None:
            seen = [*seen]
            if choose:
                translators[0], line = choose_head(translators[0], seen, hand_made)
                say(line)
            else:
                say("\n".join(measure(translators[0], seen, hand_made)))
            if both is not None and back is not None:
                back = iter(every := [*back])
                say(both.told_rate(seen, every, hand_made))
        rest = iter(seen)
        drawn = list(islice(rest, limit))
        others = [list(align_corpus(translator, given[:limit], *names)) for translator in translators[1:]]
        # Before the links: whoever reads those may stop at any time, as `head` does.
        draw(translators, [drawn, *others], given[:limit], html, svg, png)
        if show:
            print_maps(translators[0], drawn)
            return
        for forced in chain(drawn, rest):
            if both is None or back is None:
                found = read_alignment(forced, translators[0].config.alignment)
            else:
                found = both.links(forced, next(back))
            print(to_pharaoh(found, forced.dividers))


def refuse_alone(
    choose: bool,
    gold: Path | None,
    compare: list[Path] | None,
    html: Path | None,
    join: str | None,
    backward: Path | None,
) -> None:
    """Refuses options that say something about others that are not there."""
    if choose and gold is None:
        raise SightlineError("--choose needs --gold: the best head is chosen on hand-made alignments")
    if compare and html is None:
        raise SightlineError("--compare needs --html FILE: the models are shown side by side on that page")
    if backward is None and join is not None:
        raise SightlineError("--join needs --backward: it says how the links of both models are put together")


def refuse_together(backward: Path | None, choose: bool, show: bool) -> None:
    """Refuses what is about one model beside links of two."""
    if choose and backward is not None:
        raise SightlineError("--choose is for one model: choose for each of the two alone, then give --backward")
    if show and backward is not None:
        raise SightlineError("--show draws where one model looked, and --backward prints links: leave out one of them")


def print_maps(translator: Translator, seen: Iterable[Forced]) -> None:
    """Draws sentences in the terminal."""
    from sightline.gallery import heatmaps
    from sightline.plot import terminal

    for forced in seen:
        for one in heatmaps(forced, translator.config.alignment):
            print(terminal(one), end="\n\n")


def with_targets(given: Sequence[Pair] | Sequence[str], option: str) -> list[Pair]:
    """What was given, which must be pairs."""
    from sightline.data import Pair

    pairs = [one for one in given if isinstance(one, Pair)]
    if len(pairs) < len(given):
        raise SightlineError(f"{option} needs target sentences: give --target, or --pairs")
    return pairs


def read_both(forward: Translator, backward: Path, reading: str | None, join: str | None) -> BothWays:
    """The two models whose links are put together."""
    from sightline.both_ways import BothWays
    from sightline.links import SYMMETRIES
    from sightline.translator import load

    how = "intersection" if join is None else next((name for name in SYMMETRIES if name == join), None)
    if how is None:
        raise SightlineError(f"--join {join}: {nearest(join or '', SYMMETRIES)}")
    other = load(backward)
    return BothWays(forward, other if reading is None else read_by(other, reading), how)


def read_by(translator: Translator, reading: str) -> Translator:
    """The translator with another reading of its weights."""
    from sightline.config import AlignmentConfig
    from sightline.links import READINGS

    if reading not in READINGS:
        raise SightlineError(f"--reading {reading}: {nearest(reading, READINGS)}")
    chosen = {**translator.config.alignment.model_dump(), "reading": reading}
    return translator.aligning_by(AlignmentConfig.model_validate(chosen))


def read_sources(paths: list[Path], translator: Translator) -> list[str]:
    """The lines of a file that must have some, or of one for each source."""
    from sightline.readers import read_source_files

    lines = list(read_source_files(paths, translator.config.model.source_count))
    if not lines:
        raise SightlineError(f"{paths[0]}: the file is empty")
    return lines
