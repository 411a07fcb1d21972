"""The commands that give a model to other programs and take one from them: export, import."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sightline.cli_options import Model, Pairs
from sightline.console import bar, say
from sightline.errors import SightlineError

if TYPE_CHECKING:
    from sightline.folder import ModelFiles
    from sightline.interop.shortlist import Shortlist
    from sightline.readers import Pair


def export(
    model: Model,
    output: Annotated[Path, typer.Argument(help="The folder to make.", metavar="OUT")],
    to: Annotated[str, typer.Option(help="ctranslate2 or huggingface.")],
    quantize: Annotated[
        str | None, typer.Option(help="ctranslate2: the weights' type, such as int8 or float16; default float32.")
    ] = None,
    source: Annotated[Path | None, typer.Option(help="Held-out source sentences, one a line.")] = None,
    target: Annotated[Path | None, typer.Option(help="Held-out target sentences, line by line the same.")] = None,
    pairs: Pairs = None,
    tolerance: Annotated[float, typer.Option(min=0.0, help="Most BLEU, or chrF, that the export may lose.")] = 0.5,
    shortlist: Annotated[
        Path | None,
        typer.Option(help="ctranslate2: training pairs to learn a lexical shortlist from, which is faster."),
    ] = None,
    shortlist_source: Annotated[Path | None, typer.Option(help="The same in two files: the source side.")] = None,
    shortlist_target: Annotated[Path | None, typer.Option(help="And the target side.")] = None,
    shortlist_size: Annotated[
        int | None, typer.Option(min=1, help="Most target tokens that a source token brings (20).")
    ] = None,
) -> None:
    """Export a model, and verify it: both translate a held-out set, and the export's card tells how they compare.

    The set is what training was validated with, files or pairs held out, unless another is given. An export that loses
    more than --tolerance BLEU or chrF is not written. Where the model's own scores are next to nothing, the percentage
    of tokens that are no longer its own takes their place.
    """
    from sightline.folder import open_files
    from sightline.interop.verified import check_export
    from sightline.interop.verified import export as make

    files = open_files(model)
    check_export(files, to, quantize)
    given = held_out(files, source, target, pairs)
    learnt = learn_shortlist(files, (shortlist_source, shortlist_target, shortlist), shortlist_size)
    with bar(2 * len(given), "decoding with both") as watch:
        found = make(model, output, to, given, quantize, tolerance, watch, learnt)
    print("\n".join(found.lines()))
    say(f"written: {output}")


def held_out(files: ModelFiles, source: Path | None, target: Path | None, pairs: Path | None) -> list[Pair]:
    """The pairs to verify with: those given, else those that the model's training was validated with."""
    from sightline.data import read_pairs

    if source or target or pairs:
        data = files.config.data
        return read_pairs(source, target, pairs, (data.source_language, data.target_language))
    from sightline.training.held_out import held_out_pairs

    try:
        found, which = held_out_pairs(files, show=True)
    except SightlineError as error:
        raise SightlineError(
            f"{files.path}: an export is verified on a held-out set, and {error}: give --pairs FILE, "
            "or --source FILE and --target FILE"
        ) from None
    say(f"verifying on {which}")
    return found


def learn_shortlist(
    files: ModelFiles, given: tuple[Path | None, Path | None, Path | None], size: int | None
) -> Shortlist | None:
    """A shortlist learnt from a source and a target file or a file of pairs; None when none of them is given."""
    from sightline.interop.shortlist import SIZE, learn
    from sightline.readers import TextFiles

    if not any(given):
        if size is not None:
            raise SightlineError("--shortlist-size needs pairs to learn from: give --shortlist FILE")
        return None
    data = files.config.data
    text = TextFiles.given(*given, languages=(data.source_language, data.target_language))
    return learn((pair for _, pair in text.read()), files.tokenizers, size or SIZE)


def import_model(
    folder: Annotated[Path, typer.Argument(help="A MarianMT folder of Hugging Face's transformers.", metavar="FOLDER")],
    output: Annotated[Path, typer.Argument(help="The model folder to make.", metavar="OUT")],
) -> None:
    """Make a Sightline model of a MarianMT one: config.json, model.safetensors, vocab.json and the .spm files."""
    from sightline.interop.huggingface import import_marian

    import_marian(folder, output)
    say(f"written: {output}")
