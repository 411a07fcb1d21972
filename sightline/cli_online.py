"""`sightline translate --online`: the translation is written while the words of its source still come in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

from sightline.console import standard_input
from sightline.errors import SightlineError

OPTIONS = ("min_length", "max_length")  # of the search; the rest is greedy


def write_while_reading(model: Path, options: Mapping[str, Any]) -> None:
    """Lines of standard input word by word, each translated as far as its words so far allow."""
    if wrong := [name for name in options if name not in OPTIONS]:
        raise SightlineError(
            f"--online writes the most probable token at once: leave out --{wrong[0].replace('_', '-')}"
        )
    from sightline.folder import load_folder
    from sightline.online import check_online, write_online
    from sightline.plan import search_options
    from sightline.streams import arriving_words

    folder = load_folder(model)
    check_online(folder.model)
    search = search_options(folder.config, dict(options))
    words = arriving_words(standard_input(), "standard input")
    for number, first in enumerate(words, 1):
        for part in write_online(folder, line_of(first, words), search, f"standard input, line {number}"):
            print(part, end="", flush=True)
        print(flush=True)


def line_of(first: str | None, words: Iterator[str | None]) -> Iterator[str]:
    """The words until None, which ends a line."""
    return (word for word in takewhile(lambda word: word is not None, chain([first], words)) if word is not None)
