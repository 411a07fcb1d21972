"""Translation memories: `.tmx` files, read as a stream however large they are.

A unit (`tu`) holds a sentence in several languages (`tuv`, `seg`). What is asked for is a pair of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn
from xml.parsers import expat

from sightline.errors import SightlineError
from sightline.files import Watch, ignore, unpacked

BLOCK = 2**16
CODES = {"bpt", "ept", "it", "ph", "ut"}  # what they hold is mark-up of another program, no text
SHOWN = 10


def read_tmx(path: Path, source: str, target: str, watch: Watch = ignore) -> Iterator[tuple[int, str, str]]:
    """(line, source sentence, target sentence) of each unit that has both languages; the line is where it begins.

    `en` also takes `en-GB`; of several sentences in a language the first counts. Declared entities are refused: they
    can blow a small file up to any size.
    """
    units = _Units(path, _plain(source), _plain(target))
    found = False
    with unpacked(path, lambda: f", after line {units.parser.CurrentLineNumber}", watch) as stream:
        while True:
            block = stream.read(BLOCK)
            try:
                units.parser.Parse(block, not block)
            except expat.ExpatError as error:
                problem = expat.ErrorString(error.code)
                raise SightlineError(f"{path}, line {error.lineno}: broken XML: {problem}") from None
            found = found or bool(units.ready)
            yield from units.ready
            units.ready.clear()
            if not block:
                break
    if not found:
        languages = ", ".join(sorted(units.languages)[:SHOWN]) or "none"
        raise SightlineError(
            f"{path}: no unit has both '{source}' and '{target}'; its languages: {languages} "
            "(data.source_language and data.target_language choose)"
        )


def _plain(language: str) -> str:
    return language.strip().lower().replace("_", "-")


class _Units:
    """What the parser calls; complete pairs gather in `ready`."""

    def __init__(self, path: Path, source: str, target: str) -> None:
        self.path, self.wanted = path, (source, target)
        self.ready: list[tuple[int, str, str]] = []
        self.languages: set[str] = set()
        self._line, self._language = 0, ""
        self._sentences: dict[str, str] = {}
        self._text: list[str] | None = None  # of the sentence being read
        self._codes = 0  # how deep in codes
        self._root = False
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.EntityDeclHandler = self._refuse_entity
        self.parser.SkippedEntityHandler = self._refuse_entity

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._root:
            self._root = True
            if name != "tmx":
                raise SightlineError(f"{self.path}: not a TMX file: it begins with <{name}>, not with <tmx>")
        if name == "tu":
            self._line, self._sentences = self.parser.CurrentLineNumber, {}
        elif name == "tuv":
            self._language = _plain(attributes.get("xml:lang") or attributes.get("lang") or "")
            self.languages.add(self._language)
        elif name == "seg":
            self._text = []
        elif name in CODES:
            self._codes += 1

    def _end(self, name: str) -> None:
        if name in CODES:
            self._codes -= 1
        elif name == "seg" and self._text is not None:
            self._sentences.setdefault(self._language, "".join(self._text))
            self._text = None
        elif name == "tu":
            source, target = (self._sentence(language) for language in self.wanted)
            if source is not None and target is not None:
                self.ready.append((self._line, source, target))

    def _characters(self, text: str) -> None:
        if self._text is not None and not self._codes:
            self._text.append(text)

    def _sentence(self, language: str) -> str | None:
        if language in self._sentences:
            return self._sentences[language]
        return next((text for key, text in self._sentences.items() if key.startswith(f"{language}-")), None)

    def _refuse_entity(self, name: str, *_: object) -> NoReturn:
        line = self.parser.CurrentLineNumber
        raise SightlineError(f"{self.path}, line {line}: entity '{name}': a TMX file may not declare or need its own")
