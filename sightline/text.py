"""From text to tokens: learning a tokenizer from a corpus, loading one from a model's folder.

What a tokenizer does is in `sightline.tokenizers`, whose names are to be had from here too.
"""

from __future__ import annotations

import base64
import io
import json
import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from sightline.config import TextConfig
from sightline.errors import SightlineError
from sightline.tokenizers import (
    BOS,
    BYTE_PIECES,
    EOS,
    META,
    PAD,
    SPECIAL_PIECES,
    UNK,
    VOCABULARY_FORMAT,
    CharacterTokenizer,
    MarianTokenizer,
    SubwordTokenizer,
    Tokenizer,
    WordTokenizer,
    normalise,
)

if TYPE_CHECKING:
    from sightline.lexicon import Lexicon

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "UNK",
    "CharacterTokenizer",
    "MarianTokenizer",
    "Sizes",
    "SubwordTokenizer",
    "Tokenizer",
    "WordTokenizer",
    "load_tokenizer",
    "normalise",
    "read_subwords",
    "tokenizer_file",
    "train_tokenizer",
]

# Most sentences to learn from. The time of unigram grows faster than the text, and soon more of it makes no better
# vocabulary.
MOST_SENTENCES = 500_000
UNIGRAM_SENTENCES, UNIGRAM_SENTENCES_AN_ENTRY = 30_000, 4
COVERAGE = 0.9995  # with byte fallback: the share of all characters that have entries of their own
LONGEST_CHUNK = 1_000
NEARLY_ONE = 1 - 2**-53
MOST_COPIES, MOST_COPIED = 100, 5_000  # of one sentence: copies, and characters in them


@dataclass(frozen=True)
class Sizes:
    """Vocabulary sizes, and whether they are one vocabulary; `others` are those of further sources.

    For models that copy: `same` has for each source id the target id of the same name, or UNK (empty where the
    vocabulary is one), and `open_words` tells whether sentences have ids past the vocabularies; if so, `words` are the
    source ids of entries with a letter or digit. `lexicon` is for models that look words up. `marker` is the source id
    that separates the sentences of documents.
    """

    source: int
    target: int
    joint: bool
    same: tuple[int, ...] = ()
    open_words: bool = False
    words: tuple[int, ...] = ()
    lexicon: Lexicon | None = field(default=None, compare=False)
    marker: int | None = None
    others: tuple[int, ...] = ()


def tokenizer_file(folder: Path, name: str, config: TextConfig) -> Path:
    """Where the tokenizer called `name` is kept in `folder`."""
    kinds: dict[str, type[Tokenizer]] = {"word": WordTokenizer, "char": CharacterTokenizer, "marian": MarianTokenizer}
    return folder / f"{name}{kinds.get(config.tokenizer, SubwordTokenizer).suffix}"


def load_tokenizer(folder: Path, name: str, config: TextConfig) -> Tokenizer:
    """Reads what `save(folder, name)` of a tokenizer trained with the same configuration wrote."""
    path = tokenizer_file(folder, name, config)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SightlineError(f"{path}: cannot read the tokenizer: {error.strerror}") from None
    if path.suffix == SubwordTokenizer.suffix:
        return read_subwords(path, data, config)
    return _load_listed(path, data, config)


def read_subwords(path: Path, data: bytes, config: TextConfig) -> SubwordTokenizer:
    """The tokenizer that a sentencepiece model of ours makes; `path` is for errors."""
    try:
        tokenizer = SubwordTokenizer(data, config.normalization, config.lowercase)
    except (RuntimeError, IndexError):
        raise SightlineError(f"{path}: not a sentencepiece model, or a damaged one") from None
    processor = tokenizer._processor
    special = [processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id()]
    ours = processor.EncodeAsPieces(" a")[:1] != processor.EncodeAsPieces("a")[:1]
    if special != [PAD, UNK, BOS, EOS] or not ours:
        raise SightlineError(f"{path}: a sentencepiece model of another program; train the tokenizer with Sightline")
    return tokenizer


def _load_listed(path: Path, data: bytes, config: TextConfig) -> Tokenizer:
    try:
        values = json.loads(data)
    except ValueError:
        raise SightlineError(f"{path}: not a vocabulary file, or a damaged one") from None
    if not isinstance(values, dict) or values.get("format") != VOCABULARY_FORMAT:
        raise SightlineError(f"{path}: not a vocabulary file of this version of Sightline")
    if values.get("kind") != config.tokenizer:
        raise SightlineError(f"{path}: a '{values.get('kind')}' vocabulary, but text.tokenizer is '{config.tokenizer}'")
    entries = values.get("entries")
    if (
        not isinstance(entries, list)
        or not all(isinstance(entry, str) and entry for entry in entries)
        or len(set(entries)) != len(entries)
        or (config.tokenizer == "char" and " " not in entries)
    ):
        raise SightlineError(f"{path}: damaged vocabulary file: its entries must be distinct strings")
    if config.tokenizer == "marian":
        return _load_marian(path, entries, values.get("model"), config)
    if config.tokenizer == "word":
        return WordTokenizer(entries, config.normalization, config.lowercase)
    return CharacterTokenizer(entries, bool(values.get("bytes")), config.normalization, config.lowercase)


def _load_marian(path: Path, entries: list[str], model: object, config: TextConfig) -> MarianTokenizer:
    try:
        return MarianTokenizer(entries, base64.b64decode(str(model)), config.normalization, config.lowercase)
    except (RuntimeError, ValueError):
        raise SightlineError(f"{path}: damaged: it holds no sentencepiece model") from None


def train_tokenizer(lines: Iterable[str], config: TextConfig, vocabulary: int) -> Tokenizer:
    """Learns a tokenizer of at most `vocabulary` entries from sentences; the same lines give the same tokenizer.

    A corpus too small for the size gets fewer entries; of one with more than `most_sentences` a sample is studied.
    """
    if config.tokenizer == "marian":
        raise SightlineError("text.tokenizer=marian belongs to an imported model and cannot be learnt; choose unigram")
    sample = _sample(lines, most_sentences(config, vocabulary))
    clean = [line for line in (normalise(raw, config.normalization, config.lowercase) for raw in sample) if line]
    symbols = checked_symbols(config)
    if config.tokenizer == "word":
        words = Counter(word for line in clean for word in line.split())
        room = _room(words, symbols, vocabulary, len(SPECIAL_PIECES))
        entries = symbols + [word for word in _by_frequency(words) if word not in symbols][:room]
        return WordTokenizer(entries, config.normalization, config.lowercase)
    if config.tokenizer == "char":
        characters = Counter(character for line in clean for character in line if character != " ")
        fixed = len(SPECIAL_PIECES) + (256 if config.byte_fallback else 0)
        room = _room(characters, [*symbols, " "], vocabulary, fixed)
        entries = [*symbols, " ", *[one for one in _by_frequency(characters) if one not in symbols][:room]]
        return CharacterTokenizer(entries, config.byte_fallback, config.normalization, config.lowercase)
    return _train_subwords(clean, symbols, config, vocabulary)


def most_sentences(config: TextConfig, vocabulary: int) -> int:
    """How many sentences a tokenizer is learnt from at most."""
    if config.sentences is not None:
        return config.sentences
    if config.tokenizer == "unigram":
        return max(UNIGRAM_SENTENCES, UNIGRAM_SENTENCES_AN_ENTRY * vocabulary)
    return MOST_SENTENCES


def _train_subwords(lines: list[str], symbols: list[str], config: TextConfig, vocabulary: int) -> SubwordTokenizer:
    import sentencepiece

    characters = Counter(character for line in lines for character in line if character != " ")
    fixed = len(SPECIAL_PIECES) + (256 if config.byte_fallback else 0)
    room = _room(characters, [*symbols, META], vocabulary, fixed)
    rare = _rare_characters(characters, room, config.byte_fallback)
    if len(characters) - len(rare) > room:
        least = vocabulary - room + len(characters) - len(rare)
        raise SightlineError(
            f"text.vocabulary = {vocabulary} is too small for the characters of the corpus: "
            f"use at least {least}, or text.byte_fallback = true"
        )
    # sentencepiece would choose the characters by coverage alone, and then refuse a vocabulary they do not fit in.
    table = str.maketrans(dict.fromkeys(rare, " "))
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_study_text(line.translate(table) for line in lines),
            model_writer=model,
            model_type=config.tokenizer,
            vocab_size=vocabulary,
            hard_vocab_limit=False,
            character_coverage=1.0,
            byte_fallback=config.byte_fallback,
            split_digits=config.split_digits,
            user_defined_symbols=symbols,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            add_dummy_prefix=False,
            max_sentence_length=8 * LONGEST_CHUNK,
            pad_id=PAD,
            unk_id=UNK,
            bos_id=BOS,
            eos_id=EOS,
            num_threads=16,  # fixed: the sums of the training, and so the vocabulary, depend on it
            minloglevel=2,
        )
    except RuntimeError as error:
        raise SightlineError(f"sentencepiece cannot learn a vocabulary from this text: {error}") from None
    return SubwordTokenizer(model.getvalue(), config.normalization, config.lowercase)


def checked_symbols(config: TextConfig) -> list[str]:
    """The user's symbols, and what separates sentences, as they look in normalised text, each once."""
    symbols: list[str] = []
    marker = [] if config.sentence_marker is None else [config.sentence_marker]
    for symbol in [*config.symbols, *marker]:
        form = normalise(symbol, config.normalization, config.lowercase)
        key = "symbols" if symbol in config.symbols else "sentence_marker"
        if not form or " " in form or META in form:
            raise SightlineError(f"text.{key}: {symbol!r} must be one word without white space or '{META}'")
        if form in SPECIAL_PIECES or form in BYTE_PIECES:
            raise SightlineError(f"text.{key}: {symbol!r} is a name that the vocabulary uses itself; choose another")
        if form not in symbols:
            symbols.append(form)
    return symbols


def _room(counts: Counter[str], symbols: list[str], vocabulary: int, fixed: int) -> int:
    """How many entries may be learnt beside the fixed ones and the symbols: at least one."""
    if not counts:
        raise SightlineError("cannot learn a vocabulary: the training text is empty")
    room = vocabulary - fixed - len(symbols)
    if room < 1:
        least = vocabulary - room + 1
        raise SightlineError(
            f"text.vocabulary = {vocabulary} is too small: special entries, bytes and symbols take {least - 1}"
        )
    return room


def _rare_characters(counts: Counter[str], room: int, byte_fallback: bool) -> set[str]:
    """Characters that get no entry of their own: with byte fallback those beyond the coverage or half the room."""
    # The first ends strings in C, the other two have a meaning of their own in sentencepiece.
    rare = {"\0", META, "▅"} & counts.keys()
    if byte_fallback:
        covered = 0
        for rank, character in enumerate(_by_frequency(counts)):
            beyond = covered >= COVERAGE * counts.total() and not character.isascii()
            if beyond or rank >= max(1, room // 2):
                rare.add(character)
            covered += counts[character]
    return rare


def _by_frequency(counts: Counter[str]) -> list[str]:
    return sorted(counts, key=lambda entry: (-counts[entry], entry))


def _sample(lines: Iterable[str], count: int) -> list[str]:
    """At most `count` of the lines, evenly chosen, without holding the others in memory.

    A reservoir (Li 1994, algorithm L): every line has the same chance, and only those that enter cost a random number.
    """
    stream = iter(lines)
    chosen = list(islice(stream, count))
    generator = random.Random(0)
    smallest = 1.0
    while len(chosen) == count:
        smallest *= (1 - generator.random()) ** (1 / count)
        passed_over = int(math.log(1 - generator.random()) / math.log1p(-min(smallest, NEARLY_ONE)))
        entering = list(islice(stream, passed_over, passed_over + 1))
        if not entering:
            break
        chosen[generator.randrange(count)] = entering[0]
    return chosen


def _study_text(lines: Iterable[str]) -> Iterator[str]:
    """What sentencepiece learns from: long lines in parts, no line too often, each with its space in front.

    sentencepiece drops sentences over a length, and its search for seeds takes hours when the same text follows
    itself many times over; boilerplate should not shape a vocabulary anyway.
    """
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line[start : start + LONGEST_CHUNK] for start in range(0, len(line), LONGEST_CHUNK))
    chunks = []
    for chunk, count in counts.items():
        chunks += [chunk] * min(count, MOST_COPIES, max(2, MOST_COPIED // len(chunk)))
    random.Random(0).shuffle(chunks)
    return (f" {chunk}" for chunk in chunks)
