"""One call from text to text: `sightline.load(folder).translate("…")`.

No torch here: an engine imports what it needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, overload

import numpy as np

from sightline import links
from sightline.config import AlignmentConfig, RunConfig
from sightline.engines.base import Engine, Task, Watch
from sightline.engines.choice import AUTO, Engines
from sightline.errors import SightlineError, nearest
from sightline.folder import ModelFiles, open_files
from sightline.forced import NO_ATTENTION, Forced, encode_pair, has_attention
from sightline.hypothesis import Hypothesis, SearchOptions
from sightline.limits import most_tokens
from sightline.text import EOS
from sightline.translation import Translation

NO_HEAD = (
    "this export has no alignment to show: choose a head of the model it was made from (`sightline align --gold FILE "
    "--choose`) and export that again"
)
# So many lines are sorted by length together; larger would batch a little better and answer later.
LINES_AT_ONCE = 2_000


@dataclass(frozen=True)
class _Place:
    """Where lines come from: a file's name, and the number of the first."""

    name: str
    first: int


class Translator:
    """A model folder, ready to use."""

    def __init__(self, files: ModelFiles, engines: Engines) -> None:
        self.files, self.engines = files, engines

    @property
    def config(self) -> RunConfig:
        """The configuration the model was trained with."""
        return self.files.config

    @property
    def name(self) -> str:
        """The name of the model's folder."""
        return self.files.path.resolve().name

    @overload
    def translate(self, text: str, **options: Any) -> Translation: ...
    @overload
    def translate(self, text: Sequence[str], **options: Any) -> list[Translation]: ...
    def translate(self, text: str | Sequence[str], **options: Any) -> Translation | list[Translation]:
        """Translates one sentence, or several at once.

        Options: `align` (True: word links and attention weights too), `token_scores` (True: log-probabilities of
        tokens too), `beam`, `n_best`, and the other keys of the `search` section: `length_penalty`, `alpha`,
        `coverage_penalty`, `min_length`, `max_ratio`, `max_extra`.
        """
        options = {"align": True, "token_scores": True, **options}
        if isinstance(text, str):
            return next(self.stream([text], **options))
        return list(self.stream(text, **options))

    def stream(
        self,
        lines: Iterable[str],
        align: bool = False,
        name: str = "input",
        first: int = 1,
        watch: Watch = lambda count: None,
        token_scores: bool = False,
        **options: Any,
    ) -> Iterator[Translation]:
        """Translates lines as they come, in their order.

        `token_scores` asks for the log-probability of each token and for exact scores, which may cost a second pass.

        Errors tell of a line by `name` and by its number, counted from `first`; the lines before it come out.
        `watch` is told, batch by batch, how many lines more are done.
        """
        task = Task(search_options(self.config, options), self.config.alignment, align=align, token_scores=token_scores)
        engine = self.engines.for_task(task)
        for chunk in _chunks(lines, LINES_AT_ONCE):
            yield from self._chunk(chunk, engine, task, _Place(name, first), watch)
            first += len(chunk)

    def check_lines(self, lines: Sequence[str], name: str) -> None:
        """Refuses source lines that are too long, by their file and number."""
        self.check_pairs([(line, "") for line in lines], name, "")

    def check_pairs(self, pairs: Sequence[tuple[str, str]], source_name: str, target_name: str) -> None:
        """Refuses lines that are too long, by their file and number."""
        most_source, most_target = self._most_tokens()
        tokenizers = self.files.tokenizers
        for number, (source, target) in enumerate(pairs, 1):
            _check_length(tokenizers.source.encode(source), most_source, f"{source_name}, line {number}")
            _check_length(tokenizers.target.encode(target), most_target, f"{target_name}, line {number}")

    def check_attention(self) -> None:
        """Refuses a model that has no alignment to show."""
        if not has_attention(self.config.model):
            raise SightlineError(f"{self.files.path}: {NO_ATTENTION}")
        if not self.engines.aligns(self.config.alignment):
            raise SightlineError(f"{self.files.path}: {NO_HEAD}")

    def force(self, pairs: Sequence[tuple[str, str | list[int]]], weights: bool = True) -> list[Forced]:
        """What the model sees of pairs whose targets are given, as text or as ids: all its layers and heads.

        Without `weights` only the log-probabilities are kept.
        """
        return self.engines.inside().force(pairs, weights)

    def aligning_by(self, alignment: AlignmentConfig) -> Translator:
        """The same model with another choice of the weights that tell its alignment."""
        config = self.config.model_copy(update={"alignment": alignment})
        return Translator(replace(self.files, config=config), self.engines)

    def _most_tokens(self) -> tuple[int, int]:
        """The longest source and target, end symbols not counted: by the configuration, and by the model's parts."""
        source, target = most_tokens(self.config.model)
        return min(source, self.config.search.max_source), min(target, self.config.search.max_source)

    def _chunk(
        self, lines: list[str], engine: Engine, task: Task, place: _Place, watch: Watch
    ) -> Iterator[Translation]:
        encoded, failure = self._encode(lines, place)
        # A line that holds nothing is nothing in any language.
        full = [index for index, ids in enumerate(encoded) if len(ids) > 1]
        watch(len(encoded) - len(full))
        found = engine.search([encoded[index] for index in full], task, watch)
        every = [
            (self._translation(lines[index], hypothesis), hypothesis)
            for index, hypotheses in zip(full, found, strict=True)
            for hypothesis in hypotheses
        ]
        rest = iter(self._aligned(every) if task.align else [one for one, _ in every])
        done: dict[int, Translation] = {}
        for index, hypotheses in zip(full, found, strict=True):
            best, *others = [next(rest) for _ in hypotheses]
            done[index] = replace(best, others=others)
        for index in range(len(encoded)):
            yield done.get(index) or _nothing(lines[index], task.align)
        if failure is not None:
            raise failure

    def _encode(self, lines: list[str], place: _Place) -> tuple[list[list[int]], SightlineError | None]:
        """Ids with their end symbols of the lines before the first that is too long, and what is wrong with that."""
        most, _ = self._most_tokens()
        encoded: list[list[int]] = []
        for number, line in enumerate(lines, place.first):
            ids = self.files.tokenizers.source.encode(line)
            try:
                _check_length(ids, most, f"{place.name}, line {number}")
            except SightlineError as error:
                return encoded, error
            encoded.append([*ids, EOS])
        return encoded, None

    def _translation(self, line: str, hypothesis: Hypothesis) -> Translation:
        tokenizer = self.files.tokenizers.target
        return Translation(
            source=line,
            text=tokenizer.decode(hypothesis.tokens),
            score=hypothesis.score,
            log_prob=hypothesis.log_prob,
            ids=hypothesis.tokens,
            tokens=[tokenizer.piece(token) for token in hypothesis.tokens],
            token_log_probs=hypothesis.token_log_probs,
            finished=hypothesis.finished,
        )

    def _aligned(self, found: list[tuple[Translation, Hypothesis]]) -> list[Translation]:
        """The same translations with word links: from the weights that came with the search, else by a forced pass."""
        if all(hypothesis.weights is not None for _, hypothesis in found):
            seen = [self._seen(one, hypothesis) for one, hypothesis in found]
            alignment = AlignmentConfig(layer=0, head=0, reading=self.config.alignment.reading)
        elif not self.engines.aligns(self.config.alignment):
            return [one for one, _ in found]
        else:
            seen = self.force([(one.source, one.ids) for one, _ in found])
            alignment = self.config.alignment
        result = []
        for (one, _), forced in zip(found, seen, strict=True):
            pairs = forced.word_links(alignment)
            result.append(
                replace(
                    one,
                    words=forced.target_words,
                    source_words=forced.source_words,
                    links=None if pairs is None else sorted(pairs),
                    weights=forced.word_weights(alignment),
                )
            )
        return result

    def _seen(self, one: Translation, hypothesis: Hypothesis) -> Forced:
        """What a search saw, as a model of one layer with one head."""
        assert hypothesis.weights is not None
        pair = encode_pair(self.files.tokenizers, one.source, one.ids)
        rows = np.zeros((len(pair.target), len(pair.source)))
        # A translation that was cut has no row for its end.
        rows[: len(hypothesis.weights)] = hypothesis.weights
        sentence = links.Sentence([rows[None]], pair.target_owners, pair.source_owners)
        return Forced(pair.source_words, pair.target_words, sentence, hypothesis.token_log_probs)


def load(folder: str | Path, device: str | None = None, engine: str = AUTO, compute: str | None = None) -> Translator:
    """Loads a model folder.

    `device` is torch's name for one (default: a GPU if there is one). `engine` is the name of an engine, or "auto":
    the fastest that can do what it is asked. `compute` is the type that CTranslate2 computes in (default: float32,
    or what an export was quantised to): int8 is faster and nearly as good.
    """
    files = open_files(Path(folder))
    engines = Engines(files, engine, device, compute)
    engines.first()
    return Translator(files, engines)


def search_options(config: RunConfig, options: dict[str, Any]) -> SearchOptions:
    """The search section with the caller's options on top, and no longer than the model's parts can write."""
    fields = SearchOptions.__dataclass_fields__
    for name in options:
        if name not in fields:
            raise SightlineError(f"unknown option '{name}' for translating; {nearest(name, ['align', *fields])}")
    chosen = {name: value for name, value in config.search.model_dump().items() if name in fields}
    chosen |= {name: value for name, value in options.items() if value is not None}
    if 1 <= chosen["beam"] < chosen.get("n_best", 1):
        chosen["beam"] = chosen["n_best"]
    _, most = most_tokens(config.model)
    chosen["max_length"] = min(most, chosen.get("max_length", most))
    return SearchOptions(**chosen)


def _check_length(ids: list[int], most: int, where: str) -> None:
    if len(ids) > most:
        raise SightlineError(
            f"{where}: {len(ids):,} tokens, more than the {most:,} that this model takes at once: "
            "split the line into sentences"
        )


def _nothing(line: str, align: bool) -> Translation:
    """The translation of an empty line."""
    return Translation(line, "", 0.0, 0.0, [], [], [], True, links=[] if align else None)


def _chunks(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    chunk: list[str] = []
    for line in lines:
        chunk.append(line)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
