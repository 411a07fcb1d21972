"""From the files that a configuration names to what a run trains on: filtered, split, tokenised once, and mapped.

The costly results, the tokenizers and the token ids, come from the cache where the same text was prepared the same way.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import version
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from sightline import sizes
from sightline.cache import Cache, Entry, Facts
from sightline.config import RunConfig
from sightline.console import bar
from sightline.corpora import Mix, check_sides, corpora_of, mix, named_files, validation_files
from sightline.data import EncodedPairs, Origins
from sightline.encoding import CHUNK, Chunk, Encoders, PartWriter, map_part, part_files, processes_for
from sightline.errors import SightlineError
from sightline.files import sha256
from sightline.filters import MOST_EXAMPLES, Account, Example, Filters, Verdict, shortened
from sightline.folder import Tokenizers, load_tokenizers, save_tokenizers, with_lexicon
from sightline.guidance import Link, LinkFile
from sightline.readers import Pair, TextFiles
from sightline.source_texts import split_sources, tokenizer_of
from sightline.survey import HeldOut, Survey, survey
from sightline.text import train_tokenizer

Say = Callable[[str], None]

PARTS = ("train", "valid")
TEXTS = "valid.texts"
PATIENCE = 3.0  # seconds before a progress bar shows itself
MEGABYTE = 10**6


@dataclass(frozen=True)
class Prepared:
    """All a run learns from and is measured with.

    `account` and `validation` tell what is left of the training and of the validation text. `texts` are the first
    validation pairs as they were read, `digest` stands for the content of both parts, and `mix` says how often the
    corpora's pairs come in an epoch (None: each once).
    """

    tokenizers: Tokenizers
    train: EncodedPairs
    valid: EncodedPairs
    texts: list[Pair]
    account: Account
    validation: Account
    digest: str
    mix: Mix | None

    def told(self) -> list[str]:
        """What was dropped of each part, with examples; nothing where all was kept."""
        parts = (("training on", self.account), ("validating with", self.validation))
        return [line for what, account in parts if account.dropped for line in (f"{what} {account}", *account.lines())]

    @property
    def tokens_an_epoch(self) -> int:
        """Target tokens of an epoch, near enough to choose its settings by."""
        lengths = self.train.target.lengths
        if self.mix is None:
            return int(lengths.sum(dtype=np.int64))
        return sum(
            round(count * float(lengths[start:end].mean()))
            for count, (start, end) in zip(self.mix.counts, pairwise(self.mix.bounds), strict=True)
        )


def prepare(
    config: RunConfig,
    longest: int,
    tokenizers: Tokenizers | None = None,
    texts: int = 0,
    say: Say = lambda line: None,
    show: bool = False,
) -> Prepared:
    """Reads, filters, splits and tokenises, or takes what an earlier run left in the cache.

    `longest` is the most tokens of a side; `tokenizers` are learnt unless given; `texts` is how many validation pairs
    are wanted as text. `say` is told what happens, and `show` allows progress bars.
    """
    work = _Work(config, longest, say, show)
    cache = Cache.chosen(config.data.cache, say)
    if tokenizers is None:
        learnt = cache.entry("tokenizer", work.tokenizer_key(), work.learn)
        tokenizers = load_tokenizers(learnt.folder, config)
        learnt.release()
        tokenizers = _with_lexicon(tokenizers, config)
    entries = _entries(tokenizers) if config.model.has_source else f"{tokenizers.target.size:,} entries"
    say(f"tokenizer: {config.text.tokenizer}, {entries}")
    chosen = tokenizers
    entry = cache.entry("tokens", work.tokens_key(chosen), lambda folder: work.encode(chosen, folder))
    return work.load(entry, tokenizers, texts)


def _with_lexicon(tokenizers: Tokenizers, config: RunConfig) -> Tokenizers:
    """The tokenizers and the lexicon that the configuration names, if it asks for one."""
    lexicon = config.model.lexicon
    if lexicon.mode == "none":
        return tokenizers
    if lexicon.file is None:
        raise SightlineError(
            f"model.lexicon.mode={lexicon.mode} needs model.lexicon.file: source<TAB>target<TAB>probability in each "
            "line, as `sightline lexicon` makes one from pairs"
        )
    return with_lexicon(tokenizers, lexicon.file)


def _entries(tokenizers: Tokenizers) -> str:
    sizes = tokenizers.sizes
    if sizes.joint:
        return f"{sizes.source:,} entries for both sides"
    sources = " and ".join(f"{size:,}" for size in (sizes.source, *sizes.others))
    return f"{sources} source and {sizes.target:,} target entries"


class _Work:
    """The steps; what they share is made when it is first needed."""

    def __init__(self, config: RunConfig, longest: int, say: Say, show: bool) -> None:
        data = config.data
        self.config, self.longest, self.say, self.show = config, longest, say, show
        self.sources = config.model.source_count
        self.corpora, self.validation = corpora_of(data, self.sources), validation_files(data, self.sources)
        self.held_out = HeldOut(data.held_out, config.training.seed) if self.validation is None else None
        validation = [] if self.validation is None else [self.validation]
        check_sides(config.model.has_source, *(corpus.files for corpus in self.corpora), *validation)
        self.unit = "pair" if config.model.has_source else "line"
        self.links = data.alignments
        self.filters = Filters(
            longest, **data.filters.model_dump(), alone=not config.model.has_source, sources=self.sources
        )
        self.filters.judge()  # so that a wrong name of a script is told at once
        for path in named_files(data):
            if path.exists() and not path.is_file() and not path.is_dir():
                raise SightlineError(f"{path}: a pipe or a device: text is read more than once, so save it in a file")

    @cached_property
    def content(self) -> dict[str, Any]:
        """All that decides which pairs are in which part."""

        def files(given: TextFiles) -> list[Any]:
            languages = given.languages if given.form == ".tmx" else None
            several = [given.sources] if given.sources > 1 else []
            return [given.form, languages, [sha256(path) for path in given.paths], *several]

        return {
            "corpora": [files(corpus.files) for corpus in self.corpora],
            "validation": None if self.validation is None else files(self.validation),
            "filters": asdict(self.filters),
            "held_out": None if self.held_out is None else asdict(self.held_out),
            "unicode": unicodedata.unidata_version,
        }

    @property
    def linked(self) -> tuple[bool, bool]:
        """Which of the parts have links: those of the text that the links belong to."""
        return self.links is not None, self.links is not None and self.held_out is not None

    @cached_property
    def survey(self) -> Survey:
        total = sum(path.stat().st_size for corpus in self.corpora for path in corpus.files.paths if path.is_file())
        with self._bar(total / MEGABYTE, "reading (MB)") as watch:
            found = survey(self.corpora, self.filters, self.held_out, lambda count: watch(count / MEGABYTE))
        self._tell_held_out(found.count(Verdict.VALID), found.account().kept)
        return found

    def _tell_held_out(self, count: int, usable: int) -> None:
        if self.held_out is not None:
            self.say(f"held out {count:,} of {usable:,} {self.unit}s for validation (no sentence is in both parts)")

    def _bar(self, total: float, what: str) -> AbstractContextManager[Callable[[float], None]]:
        return bar(total, what, self.show, PATIENCE)

    def read(self) -> Iterator[tuple[int, int, Pair, int]]:
        """(corpus, line, pair, verdict) of every pair."""
        verdicts = iter(self.survey.verdicts.tobytes())
        for number, corpus in enumerate(self.corpora):
            for line, pair in corpus.files.read():
                yield number, line, pair, next(verdicts)

    # The tokenizers

    def tokenizer_key(self) -> dict[str, Any]:
        """All that decides what the tokenizers will be."""
        text = self.config.text.model_dump(mode="json")
        return {**self.content, "text": text, "sentencepiece": version("sentencepiece")}

    def learn(self, folder: Path) -> Facts:
        """Learns the tokenizers from the training part and writes their files."""
        text = self.config.text
        vocabulary = sizes.choose_vocabulary(text, self.survey.training_words())
        self.say(f"learning the tokenizer from {self.survey.count(Verdict.TRAIN):,} {self.unit}s")

        count = self.sources

        def sentences(*sides: int) -> Iterator[str]:
            for _, _, pair, verdict in self.read():
                if verdict == Verdict.TRAIN:
                    texts = (*split_sources(pair.source, count), pair.target)
                    yield from (texts[side] for side in sides)

        if text.joint:
            sides = range(count + 1) if self.config.model.has_source else (count,)
            joint = train_tokenizer(sentences(*sides), text, vocabulary)
            tokenizers = Tokenizers(tokenizer_of([joint] * count), joint)
        else:
            *sources, target = (train_tokenizer(sentences(side), text, vocabulary) for side in range(count + 1))
            tokenizers = Tokenizers(tokenizer_of(sources), target)
        save_tokenizers(folder, tokenizers)
        return {}

    # The token ids

    def tokens_key(self, tokenizers: Tokenizers) -> dict[str, Any]:
        """All that decides what the token ids will be."""
        digests = {name: _digest(tokenizer.content()) for name, tokenizer in tokenizers.names.items()}
        text = self.config.text
        key = {**self.content, "tokenizers": digests, "normalise": [text.normalization, text.lowercase]}
        links = {} if self.links is None else {"links": sha256(self.links)}
        return key | ({"open_words": True} if tokenizers.open else {}) | links

    def encode(self, tokenizers: Tokenizers, folder: Path) -> Facts:
        """Tokenises both parts into `folder`."""
        found = self.survey
        pairs = found.count(Verdict.TRAIN) + found.count(Verdict.VALID)
        processes = processes_for(pairs)
        if processes > 1:
            self.say(f"tokenising {pairs:,} {self.unit}s in {processes} processes")
        vocabularies = tokenizers.id_limits(self.longest)
        dropped: tuple[Counter[Verdict], ...] = (Counter(found.account().dropped), Counter())
        examples = (_Examples(), _Examples())
        source = tokenizers.source if self.config.model.has_source else None
        encoders = Encoders(source, tokenizers.target, self.longest, processes, tokenizers.open)
        of_train, of_valid = (self.longest if linked else None for linked in self.linked)
        with (
            PartWriter(folder, "train", vocabularies, len(self.corpora), of_train) as train,
            PartWriter(folder, "valid", vocabularies, len(self.corpora) if self.held_out else 1, of_valid) as valid,
            open(folder / TEXTS, "w", encoding="utf-8") as texts,
            encoders,
            self._bar(pairs, "tokenising") as watch,
        ):
            for chunk, encoded in encoders.encode(self._chunks(examples[0])):
                (train, valid)[chunk.part].append(chunk, encoded)
                for place in np.flatnonzero(encoded.verdicts).tolist():
                    why = Verdict(int(encoded.verdicts[place]))
                    dropped[chunk.part][why] += 1
                    examples[chunk.part].add(why, chunk.corpus, chunk.lines[place], chunk.pairs[place])
                if chunk.part == 1:
                    kept = np.flatnonzero(encoded.verdicts == Verdict.TRAIN).tolist()
                    texts.writelines(json.dumps(chunk.pairs[place]) + "\n" for place in kept)
                watch(len(chunk.pairs))
        return {
            "counts": [train.counts, valid.counts],
            "held_out": found.count(Verdict.VALID),
            "usable": found.account().kept,
            "dropped": [{why.name: count for why, count in part.items()} for part in dropped],
            "examples": [part.found for part in examples],
        }

    def _chunks(self, examples: _Examples) -> Iterator[Chunk]:
        """The pairs of both parts in chunks; the others, which were to be trained on, leave examples."""
        open_chunks: dict[int, Chunk] = {}
        for corpus, line, pair, verdict, links in self._both_parts():
            if verdict > Verdict.VALID:
                examples.add(Verdict(verdict), corpus, line, pair)
                continue
            part = int(verdict)
            chunk = open_chunks.get(part)
            if chunk is not None and (chunk.corpus != corpus or len(chunk.lines) >= CHUNK):
                yield open_chunks.pop(part)
                chunk = None
            if chunk is None:
                chunk = open_chunks[part] = Chunk(part, corpus, [], [], [] if self.linked[part] else None)
            chunk.lines.append(line)
            chunk.pairs.append(pair)
            if chunk.links is not None:
                chunk.links.append(links)
        yield from open_chunks.values()

    def _both_parts(self) -> Iterator[tuple[int, int, Pair, int, list[Link]]]:
        """(corpus, line, pair, verdict, links) of every pair."""
        file = None if self.links is None else LinkFile(self.links)
        for corpus, line, pair, verdict in self.read():
            given = file.take() if file else ""
            yield corpus, line, pair, verdict, file.links(given, pair) if file and verdict <= Verdict.VALID else []
        if file is not None:
            file.end()
        if self.validation is not None:
            for line, pair in self.validation.read():
                yield 0, line, pair, Verdict.VALID, []

    def load(self, entry: Entry, tokenizers: Tokenizers, texts: int) -> Prepared:
        """Maps the token ids and puts together what is known of them."""
        facts = entry.facts
        if entry.found:
            self.say(f"tokenised before: {entry.folder}")
            if "survey" not in vars(self):  # which would have told
                self._tell_held_out(facts["held_out"], facts["usable"])
        training = tuple(corpus.files for corpus in self.corpora)
        validation = training if self.validation is None else (self.validation,)
        vocabularies = tokenizers.id_limits(self.longest)
        train, valid = (
            map_part(
                entry.folder,
                name,
                vocabularies,
                Origins(files, tuple(np.cumsum([0, *counts]).tolist())),
                self.longest if linked else None,
                self.sources,
            )
            for name, files, counts, linked in zip(
                PARTS, (training, validation), facts["counts"], self.linked, strict=True
            )
        )
        with open(entry.folder / TEXTS, encoding="utf-8") as lines:
            first = [Pair(*json.loads(line)) for line in islice(lines, texts)]
        entry.release()
        learnt_from, validated_with = self._accounts(facts, (len(train), len(valid)), (training, validation))
        return Prepared(
            tokenizers,
            train,
            valid,
            first,
            learnt_from,
            validated_with,
            _digest(
                "".join(
                    entry.digests[name]
                    for part, linked in zip(PARTS, self.linked, strict=True)
                    for name in part_files(part, linked)
                ).encode()
            ),
            mix(facts["counts"][0], [corpus.weight for corpus in self.corpora], self.config.data.temperature),
        )

    def _accounts(
        self, facts: Facts, kept: tuple[int, int], files: tuple[tuple[TextFiles, ...], tuple[TextFiles, ...]]
    ) -> list[Account]:
        """What was dropped of the training and of the validation text; it is a mistake if one has nothing left."""
        accounts = []
        for number, purpose in enumerate(("train on", "validate with")):
            examples = {
                Verdict[why]: [Example(files[number][corpus].where(line), *pair) for corpus, line, pair in found]
                for why, found in facts["examples"][number].items()
            }
            dropped = {Verdict[why]: count for why, count in facts["dropped"][number].items()}
            account = Account(kept[number], dropped, examples, self.unit)
            if not account.kept:
                longest = f"(more than {self.longest:,} tokens: data.max_length)"
                raise SightlineError(f"nothing is left to {purpose}: {account} {longest}")
            accounts.append(account)
        return accounts


class _Examples:
    """The first pairs dropped for each reason: (corpus, line, shortened sides)."""

    def __init__(self) -> None:
        self.found: dict[str, list[tuple[int, int, tuple[str, str]]]] = defaultdict(list)

    def add(self, why: Verdict, corpus: int, line: int, pair: Pair) -> None:
        examples = self.found[why.name]
        if len(examples) < MOST_EXAMPLES:
            examples.append((corpus, line, (shortened(pair.source), shortened(pair.target))))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
