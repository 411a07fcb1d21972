"""The command that learns a lexicon from pairs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sightline.console import say
from sightline.errors import SightlineError

if TYPE_CHECKING:
    from sightline.folder import Tokenizers
    from sightline.lexicon import Lexicon
    from sightline.readers import TextFiles


def lexicon(
    output: Annotated[Path, typer.Option(help="The file to write.")],
    source: Annotated[Path | None, typer.Option(help="Source sentences, one a line.")] = None,
    target: Annotated[Path | None, typer.Option(help="Target sentences, line by line the same.")] = None,
    pairs: Annotated[Path | None, typer.Option(help="Both in one file: .tsv, .csv, .jsonl, .parquet or .tmx.")] = None,
    alignments: Annotated[
        Path | None, typer.Option(help="Word links of all pairs, Pharaoh lines: count these, and guess nothing.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="A model folder whose tokens to use; without it words, split at spaces.")
    ] = None,
    most: Annotated[int, typer.Option(min=1, help="Most targets of a source.")] = 20,
    least: Annotated[float, typer.Option(min=0.0, max=1.0, help="The least probability that is kept.")] = 0.01,
) -> None:
    """Learn a lexicon from pairs: source<TAB>target<TAB>probability, for model.lexicon.file."""
    from sightline.files import check_writable, write_text
    from sightline.interop.shortlist import encode
    from sightline.lexicon import learn_lexicon
    from sightline.readers import TextFiles
    from sightline.tokenizers import EOS

    if not (source or target or pairs):
        raise SightlineError("no text: give --pairs FILE, or --source FILE and --target FILE")
    check_writable(output)
    text = TextFiles.given(source, target, pairs)
    tokenizers = word_tokenizers(text) if model is None else tokenizers_of(model)
    if alignments is not None:
        every = linked_lexicon(text, alignments, tokenizers)
    else:
        encoded = encode((pair for _, pair in text.read()), tokenizers)
        if not encoded:
            raise SightlineError(f"{text.paths[0]}: no pair to learn a lexicon from: a side of each is empty")
        # The end symbol stood for words that come from nowhere.
        every = learn_lexicon(encoded, tokenizers.target.size).without(EOS)
    learnt = every.best(most, least)
    if not len(learnt.sources):
        raise SightlineError(f"--least {least:g}: no target of any source is as probable: choose less")
    write_text(output, learnt.text(tokenizers.source, tokenizers.target))
    say(f"written: {output}, {len(learnt.sources):,} entries")


def linked_lexicon(text: TextFiles, path: Path, tokenizers: Tokenizers) -> Lexicon:
    """What the links of a file count to, which has a line for each pair of the text."""
    from sightline.guidance import LinkFile, token_links
    from sightline.lexicon import counted_lexicon

    file, counts = LinkFile(path), Counter[tuple[int, int]]()
    for _, pair in text.read():
        if links := file.links(file.take(), pair):
            source, source_owners = tokenizers.source.encode_given(pair.source)
            target, target_owners = tokenizers.target.encode_given(pair.target)
            found = token_links(links, source_owners, target_owners)
            counts.update((source[left], target[right]) for left, right in found)
    file.end()
    if not counts:
        raise SightlineError(f"{path}: no pair has a link, so there is nothing to make a lexicon of")
    return counted_lexicon(counts)


def tokenizers_of(model: Path) -> Tokenizers:
    """The vocabularies of a model that has a source."""
    from sightline.folder import open_files

    files = open_files(model)
    if not files.config.model.has_source:
        raise SightlineError(f"{model}: a language model has no source, so no lexicon is of its words")
    return files.tokenizers


def word_tokenizers(text: TextFiles) -> Tokenizers:
    """Vocabularies of all the words of both sides."""
    from sightline.config import TextConfig
    from sightline.folder import Tokenizers
    from sightline.text import train_tokenizer

    config = TextConfig(tokenizer="word")
    source, target = (train_tokenizer((pair[side] for _, pair in text.read()), config, 2**31) for side in (0, 1))
    return Tokenizers(source, target)
