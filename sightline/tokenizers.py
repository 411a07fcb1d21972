"""Text to token ids and back: normalising, special ids, and three kinds of tokenizer behind one interface.

White space is whatever `str.split` splits at. `normalise` folds every run of it into one space, so a sentence is words
joined by single spaces, no token reaches over two words, and what is known of tokens can be told of words.

Decoding is the same for all kinds: each id stands for some bytes (a space begins a word), the bytes of a sentence are
joined and read as UTF-8. With byte fallback, `decode(encode(x)) == normalise(x)` for every string x.
"""

from __future__ import annotations

import base64
import codecs
import json
import re
import unicodedata
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from sightline.files import write_bytes

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIAL_PIECES = ["<pad>", "<unk>", "<s>", "</s>"]
BYTE_PIECES = [f"<0x{value:02X}>" for value in range(256)]
UNKNOWN = b"<unk>"

# sentencepiece writes a space as this character, so it can never be an ordinary one to it: see SubwordTokenizer.
META = "▁"

VOCABULARY_FORMAT = "sightline vocabulary 1"
CACHED_WORDS = 200_000
LONGEST_CACHED = 64

_SURROGATES = re.compile("[\ud800-\udfff]")
_FORMS: dict[str, Literal["NFC", "NFKC"]] = {"nfc": "NFC", "nfkc": "NFKC"}


def normalise(text: str, form: Literal["nfc", "nfkc", "none"], lowercase: bool) -> str:
    """Text as all tokenizers see it: normal form, perhaps lower case, single spaces; idempotent.

    Surrogates, which are no characters and cannot be written as UTF-8, become U+FFFD.
    """
    return " ".join(normal_words(text, form, lowercase))


def normal_words(text: str, form: Literal["nfc", "nfkc", "none"], lowercase: bool) -> list[str]:
    """The words of the normalised text."""
    if text.isascii():  # which has no surrogates, and one form only
        return (text.lower() if lowercase else text).split()
    text = _SURROGATES.sub("\ufffd", text)
    if form != "none":
        text = unicodedata.normalize(_FORMS[form], text)
    if lowercase:
        # Lower-casing may undo the normal form, and before it the form may still bring capitals (NFKC of "™").
        text = text.lower()
        if form != "none":
            text = unicodedata.normalize(_FORMS[form], text)
    return text.split()


class Tokenizer(ABC):
    """Text to ids and back. `size` is the number of entries; ids 0 to 3 are PAD, UNK, BOS and EOS in every kind."""

    suffix: ClassVar[str]

    def __init__(self, pieces: Sequence[str], surfaces: Sequence[bytes], normalization: str, lowercase: bool) -> None:
        self._pieces = pieces
        self._surfaces = surfaces
        self._normalization: Any = normalization
        self._lowercase = lowercase
        self._between: list[int] = []
        self._cache: dict[str, list[int]] = {}
        self._letters: frozenset[str] | None = None

    @property
    def size(self) -> int:
        """How many entries the vocabulary has."""
        return len(self._pieces)

    @property
    def parts(self) -> tuple[Tokenizer, ...]:
        """The tokenizers of several sources, or itself: see `sightline.source_texts`."""
        return (self,)

    def texts(self, text: str) -> list[str]:
        """The text for each of `parts`."""
        return [text]

    def normalise(self, text: str) -> str:
        """The text as this tokenizer sees it."""
        return normalise(text, self._normalization, self._lowercase)

    def letters(self) -> frozenset[str]:
        """The letters, as small ones, that its entries are spelled with; what it spells byte by byte has none."""
        if self._letters is None:
            spelled = (surface.decode("utf-8", "ignore") for surface in self._surfaces)
            self._letters = frozenset(filter(str.isalpha, "".join(spelled).casefold()))
        return self._letters

    def halves(self) -> dict[int, tuple[int, int]]:
        """Which two entries an entry can be split into, of those that can: subwords."""
        return {}

    def encode(self, text: str) -> list[int]:
        """The ids of a sentence, without start and end symbols."""
        ids: list[int] = []
        between = self._between
        for number, word in enumerate(normal_words(text, self._normalization, self._lowercase)):
            if number and between:
                ids += between
            ids += self._cache.get(word) or self._word(word)
        return ids

    def encode_words(self, text: str) -> tuple[list[int], list[str], list[int]]:
        """The ids of a sentence, its words, and for each id the number of the word it belongs to."""
        words = normal_words(text, self._normalization, self._lowercase)
        ids: list[int] = []
        owners: list[int] = []
        for number, word in enumerate(words):
            spelled = self._word(word)
            if number and self._between:
                spelled = self._between + spelled
            ids += spelled
            owners += [number] * len(spelled)
        return ids, words, owners

    def encode_given(self, text: str) -> tuple[list[int], list[int]]:
        """The ids of a sentence, and for each the number of its word as the text has it, between spaces.

        Normalising may make several words of one, and of some characters none.
        """
        ids, _, owners = self.encode_words(text)
        given = text.split()
        counts = [len(normal_words(word, self._normalization, self._lowercase)) for word in given]
        origins = [number for number, count in enumerate(counts) for _ in range(count)]
        return ids, [origins[owner] for owner in owners]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; PAD, BOS and EOS are skipped, white space is folded."""
        surfaces = self._surfaces
        return " ".join(b"".join([surfaces[id] for id in ids]).decode("utf-8", "replace").split())

    def words_of(self, ids: Sequence[int]) -> tuple[list[str], list[int]]:
        """The words of `decode(ids)`, and for each id the number of its word (-1 for PAD, BOS and EOS).

        A lone space belongs to the word after it, and the bytes of a character to the word the character is in.
        """
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        fragments = [decoder.decode(self._surfaces[id]) for id in ids]
        text = "".join([*fragments, decoder.decode(b"", final=True)])
        spans = [match.span() for match in re.finditer(r"\S+", text)]
        starts = [start for start, _ in spans]
        owners: list[int] = []
        end = 0
        for id, fragment in zip(ids, fragments, strict=True):
            start, end = end, end + len(fragment)
            owner = bisect_left(starts, end) - 1  # the last word that begins before the fragment's end
            if owner < 0 or spans[owner][1] <= start:
                owner = min(owner + 1, len(spans) - 1)
            owners.append(-1 if id in (PAD, BOS, EOS) else owner)
        return [text[start:end] for start, end in spans], owners

    def same_entries(self, other: Tokenizer) -> bool:
        """Whether both give the same ids the same names."""
        return self is other or self._pieces == other._pieces

    def ids_of(self, other: Tokenizer) -> tuple[int, ...]:
        """For each id of `other`, the id here of the entry of the same name, or UNK."""
        ids = {piece: id for id, piece in enumerate(self._pieces)}
        return tuple(ids.get(piece, UNK) for piece in other._pieces)

    def with_letters(self) -> tuple[int, ...]:
        """The ids of the entries, special ones aside, that have a letter or a digit."""
        entries = enumerate(self._pieces[len(SPECIAL_PIECES) :], len(SPECIAL_PIECES))
        return tuple(id for id, piece in entries if any(map(str.isalnum, piece)))

    def piece(self, id: int) -> str:
        """The name of an entry; a space is shown as ▁."""
        return self._pieces[id]

    def names(self, ids: Iterable[int]) -> list[str]:
        """The names of several."""
        pieces = self._pieces
        return [pieces[id] for id in ids]

    def surface(self, id: int) -> bytes:
        """The bytes that an entry stands for in UTF-8: a space where it begins a word, none for PAD, BOS and EOS."""
        return self._surfaces[id]

    def pieces(self, text: str) -> list[str]:
        """The names of the entries that spell a sentence."""
        return self.names(self.encode(text))

    @abstractmethod
    def content(self) -> bytes:
        """What the vocabulary's file holds."""

    def save(self, folder: Path, name: str) -> Path:
        """Writes the vocabulary as one file in `folder`, called `name` and the kind's suffix."""
        path = folder / f"{name}{self.suffix}"
        write_bytes(path, self.content())
        return path

    @abstractmethod
    def _spell(self, word: str) -> list[int]:
        """The ids of one word, a space before it included where the kind has no separate one."""

    def _word(self, word: str) -> list[int]:
        # Words repeat, and a look into a dictionary is quicker than spelling them again.
        ids = self._cache.get(word)
        if ids is None:
            ids = self._spell(word)
            if len(word) <= LONGEST_CACHED:
                if len(self._cache) >= CACHED_WORDS:
                    self._cache.clear()
                self._cache[word] = ids
        return ids

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cache": {}}


class SubwordTokenizer(Tokenizer):
    """Pieces of words, learnt by sentencepiece (unigram or bpe).

    We normalise and put the space before each word ourselves; sentencepiece changes nothing. U+2581 (▁), which it uses
    for the space, is spelled in bytes when it stands in the text, or is unknown without byte fallback.
    """

    suffix = ".spm"

    def __init__(self, model: bytes, normalization: str, lowercase: bool) -> None:
        from sentencepiece import SentencePieceProcessor, set_min_log_level

        set_min_log_level(2)
        processor = SentencePieceProcessor()
        processor.LoadFromSerializedProto(model)
        ids = range(processor.GetPieceSize())
        pieces = [processor.IdToPiece(id) for id in ids]
        surfaces = [piece.replace(META, " ").encode() for piece in pieces]
        for id in ids:
            if processor.IsControl(id):
                surfaces[id] = b""
            elif processor.IsByte(id):
                surfaces[id] = bytes([BYTE_PIECES.index(pieces[id])])
        surfaces[UNK] = UNKNOWN
        super().__init__(pieces, surfaces, normalization, lowercase)
        self._processor = processor
        self._model = model
        self._meta = [processor.PieceToId(f"<0x{value:02X}>") for value in META.encode()]
        if UNK in self._meta:
            self._meta = [UNK]

    def halves(self) -> dict[int, tuple[int, int]]:
        """Of the ways to split a piece in two, the one that sentencepiece likes best."""
        processor = self._processor
        plain = [
            id
            for id in range(self.size)
            if not (processor.IsControl(id) or processor.IsUnknown(id) or processor.IsByte(id))
        ]
        known = {self._pieces[id]: id for id in plain}
        scores = {id: processor.GetScore(id) for id in plain}
        result: dict[int, tuple[int, int]] = {}
        for piece, id in known.items():
            cuts = ((known.get(piece[:cut]), known.get(piece[cut:])) for cut in range(1, len(piece)))
            found = [(left, right) for left, right in cuts if left is not None and right is not None]
            if found:
                result[id] = max(found, key=lambda halves: scores[halves[0]] + scores[halves[1]])
        return result

    def content(self) -> bytes:
        """sentencepiece's own file."""
        return self._model

    def _spell(self, word: str) -> list[int]:
        first, *rest = word.split(META)
        ids = list(self._processor.EncodeAsIds(" " + first))
        for part in rest:
            ids += self._meta
            ids += self._processor.EncodeAsIds(part)
        return ids


class _ListedTokenizer(Tokenizer):
    """A vocabulary that is a list of strings, kept in a small JSON file."""

    suffix = ".vocab"
    kind: ClassVar[str]

    def __init__(
        self,
        entries: list[str],
        surfaces: list[bytes],
        with_bytes: bool,
        normalization: str,
        lowercase: bool,
        unknown: bytes,
    ) -> None:
        fixed = SPECIAL_PIECES + (BYTE_PIECES if with_bytes else [])
        values = [bytes([value]) for value in range(256)] if with_bytes else []
        pieces = [*fixed, *(entry.replace(" ", META) for entry in entries)]
        super().__init__(pieces, [b"", unknown, b"", b"", *values, *surfaces], normalization, lowercase)
        self._entries = entries
        self._ids = {entry: id for id, entry in enumerate(entries, start=len(fixed))}
        self._with_bytes = with_bytes

    def content(self) -> bytes:
        """A JSON file with one entry a line."""
        values = {
            "format": VOCABULARY_FORMAT,
            "kind": self.kind,
            "bytes": self._with_bytes,
            "entries": self._entries,
        }
        return f"{json.dumps(values, ensure_ascii=False, indent=0)}\n".encode()


class MarianTokenizer(Tokenizer):
    """The tokenizer of an imported MarianMT model: sentencepiece cuts and normalises, a list of its own numbers.

    The two sides of a model have one list, each may have a sentencepiece model of its own. A word such as `>>fra<<`,
    which names a language to translate into, stays whole where the list has it.
    """

    kind = "marian"
    suffix = ".marian"

    def __init__(self, entries: list[str], model: bytes, normalization: str, lowercase: bool) -> None:
        from sentencepiece import SentencePieceProcessor, set_min_log_level

        set_min_log_level(2)
        self._processor = SentencePieceProcessor()
        self._processor.LoadFromSerializedProto(model)
        byte_of = {piece: bytes([value]) for value, piece in enumerate(BYTE_PIECES)}
        surfaces = [byte_of.get(entry, entry.replace(META, " ").encode()) for entry in entries]
        super().__init__([*SPECIAL_PIECES, *entries], [b"", UNKNOWN, b"", b"", *surfaces], normalization, lowercase)
        self._entries, self._model = entries, model
        self._ids = {entry: id for id, entry in enumerate(entries, start=len(SPECIAL_PIECES))}

    def content(self) -> bytes:
        """A JSON file of the entries and the sentencepiece model."""
        model = base64.b64encode(self._model).decode()
        values = {"format": VOCABULARY_FORMAT, "kind": self.kind, "model": model, "entries": self._entries}
        return f"{json.dumps(values, ensure_ascii=False, indent=0)}\n".encode()

    def _spell(self, word: str) -> list[int]:
        if word.startswith(">>") and word in self._ids:
            return [self._ids[word]]
        return [self._ids.get(piece, UNK) for piece in self._processor.EncodeAsPieces(word)]


class WordTokenizer(_ListedTokenizer):
    """Whole words, split at spaces. A word that is not in the list becomes UNK and decodes as `<unk>`."""

    kind = "word"

    def __init__(self, entries: list[str], normalization: str, lowercase: bool) -> None:
        surfaces = [f" {entry}".encode() for entry in entries]
        super().__init__(entries, surfaces, False, normalization, lowercase, b" " + UNKNOWN)

    def _spell(self, word: str) -> list[int]:
        return [self._ids.get(word, UNK)]


class CharacterTokenizer(_ListedTokenizer):
    """Characters, the space among them, and symbols of several characters that stay whole.

    A character that is not in the list is spelled in bytes, or becomes UNK without byte fallback.
    """

    kind = "char"

    def __init__(self, entries: list[str], byte_fallback: bool, normalization: str, lowercase: bool) -> None:
        surfaces = [entry.encode() for entry in entries]
        super().__init__(entries, surfaces, byte_fallback, normalization, lowercase, UNKNOWN)
        self._between = [self._ids[" "]]
        symbols = sorted((entry for entry in entries if len(entry) > 1), key=len, reverse=True)
        self._parts = re.compile("|".join([*map(re.escape, symbols), "."]), re.DOTALL)

    def _spell(self, word: str) -> list[int]:
        ids: list[int] = []
        for part in self._parts.findall(word):
            if part in self._ids:
                ids.append(self._ids[part])
            elif self._with_bytes:
                ids += [len(SPECIAL_PIECES) + value for value in part.encode()]
            else:
                ids.append(UNK)
        return ids
