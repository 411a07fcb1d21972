"""One call from text to text: `sightline.load(folder).translate("…")`.

No torch here: an engine imports what it needs. What only some translations need is imported when they do, since a first
translation waits for every import.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, overload

import numpy as np

from sightline.config import AlignmentConfig, RunConfig
from sightline.engines.base import Task, Watch
from sightline.engines.choice import AUTO, Engines
from sightline.errors import SightlineError, nearest
from sightline.folder import ModelFiles, open_files
from sightline.forced import NO_ATTENTION, Forced, encode_pair, forced_pair, has_attention
from sightline.hypothesis import Hypothesis, Request, SearchOptions
from sightline.limits import most_tokens
from sightline.source_texts import check_count, joined_line, longest_part, wrong_count
from sightline.streams import text_parts
from sightline.text import EOS
from sightline.translation import Translation, nothing
from sightline.wishes import NAMES, Wishes, no_room, read_wishes

CHOOSE_HEAD = (
    "choose a head of the model (`sightline align MODEL --pairs FILE --gold LINKS --choose` finds the best by given "
    "links; or set layer and head under alignment in its config.yaml) and export it again"
)
NO_HEAD = f"this export has no alignment to show, since its model had no head chosen: {CHOOSE_HEAD}"
NO_SOURCE = (
    "a language model has nothing to translate: `sightline generate` writes with it, and `sightline evaluate --text` "
    "and `sightline score --text` tell how probable a text is"
)
# So many lines are sorted by length together: of those that come one after the other, since more would batch a little
# better and answer later, and of those that are all there.
LINES_AT_ONCE, LINES_OF_LIST = 2_000, 20_000


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
    def translate(self, text: Sequence[str] | Sequence[tuple[str, ...]], **options: Any) -> list[Translation]: ...
    def translate(
        self, text: str | Sequence[str] | Sequence[tuple[str, ...]], **options: Any
    ) -> Translation | list[Translation]:
        """Translates one sentence, or several at once.

        The sources of a model that reads several are a tuple, or one line with tabs between them.

        Options: `align` (True: word links and attention weights too), `token_scores` (True), all of `SearchOptions`
        (`strategy`, `beam`, `n_best`, `samples`, `no_repeat` …) and of `Wishes` (`prefix`, `glossary`, `forbid` …).
        """
        options = {"align": True, "token_scores": True, **options}
        if isinstance(text, str):
            return next(self.stream([text], **options))
        return list(self.stream(text, **options))

    def live(self, text: str | tuple[str, ...], **options: Any) -> Iterator[str]:
        """The translation of one sentence as it is made: parts of its text, each as soon as it is certain.

        Greedy search and one sample are certain of every token; a beam of what its hypotheses agree on. Options are
        those of `translate`, but for what needs the whole.
        """
        wishes, rest = read_wishes(options)
        task = self._task(wishes, rest, align=False, token_scores=False)
        text = joined_line(text)
        encoded, failure = self._encode([text], _Place("text", 1))
        if failure is not None:
            raise failure
        if len(encoded[0]) == 1:
            return
        (request,) = self._requests([(1, text, encoded[0])], wishes, task, "text")
        parts = self.engines.inside().live(encoded[0], replace(task, requests=(request,)))
        yield from text_parts(self.files.tokenizers.opened(text).target, parts)

    def stream(
        self,
        lines: Iterable[str] | Iterable[tuple[str, ...]],
        align: bool = False,
        name: str = "input",
        first: int = 1,
        watch: Watch = lambda count: None,
        token_scores: bool = False,
        **options: Any,
    ) -> Iterator[Translation]:
        """Translates lines as they come, in their order.

        `token_scores` asks for the log-probability of each token and for exact scores, maybe by a second pass; without
        it a score may be a little off, or nan where it would cost time. Other options are those of `translate`. Errors
        tell of a line by `name` and by its number, counted from `first`; the lines before it come out. `watch` is told,
        batch by batch, how many lines more are done.
        """
        wishes, rest = read_wishes(options)
        task = self._task(wishes, rest, align, token_scores)
        joined = (joined_line(line) for line in lines)
        for chunk in _chunks(joined, LINES_OF_LIST if isinstance(lines, Sequence) else LINES_AT_ONCE):
            yield from self._chunk(chunk, wishes, task, _Place(name, first), watch)
            first += len(chunk)

    def check_lines(self, lines: Sequence[str], name: str) -> None:
        """Refuses source lines that are too long, by their file and number."""
        self.check_pairs([(line, "") for line in lines], name, "")

    def check_pairs(self, pairs: Sequence[tuple[str, str]], source_name: str, target_name: str, first: int = 1) -> None:
        """Refuses lines that are too long, by their file and number, counted from `first`."""
        most_source, most_target = self._most_tokens()
        tokenizers = self.files.tokenizers
        for number, (source, target) in enumerate(pairs, first):
            self._check_line(source, tokenizers.source.encode(source), most_source, f"{source_name}, line {number}")
            _check_length(tokenizers.target.encode(target), most_target, f"{target_name}, line {number}")

    def refusal(self, line: str) -> str | None:
        """Why a source line cannot be translated: it is too long, or not so many sources. None when it can."""
        most, _ = self._most_tokens()
        wrong = wrong_count(line, self.config.model.source_count)
        return wrong or _too_long(self.files.tokenizers.source.encode(line), most)

    def _check_line(self, line: str, ids: list[int], most: int, where: str) -> None:
        """Refuses a line of another number of sources, or that is too long."""
        check_count(line, self.config.model.source_count, where)
        _check_length(ids, most, where)

    def check_source(self) -> None:
        """Refuses a model that reads no source."""
        if not self.config.model.has_source:
            raise SightlineError(f"{self.files.path}: {NO_SOURCE}")

    def check_attention(self) -> None:
        """Refuses a model that has no alignment to show."""
        if not has_attention(self.config.model):
            raise SightlineError(f"{self.files.path}: {NO_ATTENTION}")
        if not self.engines.aligns(self.config.alignment):
            raise SightlineError(f"{self.files.path}: {NO_HEAD}")

    def force(self, pairs: Sequence[tuple[str, str | list[int]]]) -> list[Forced]:
        """What the model sees of pairs whose targets are given, as text or as ids: all its layers and heads."""
        return self.engines.inside().force(pairs)

    def aligning_by(self, alignment: AlignmentConfig) -> Translator:
        """The same model with another choice of the weights that tell its alignment."""
        config = self.config.model_copy(update={"alignment": alignment})
        return Translator(replace(self.files, config=config), self.engines)

    def _most_tokens(self) -> tuple[int, int]:
        """The longest source and target, end symbols not counted: by the configuration, and by the model's parts."""
        source, target = most_tokens(self.config.model)
        return min(source, self.config.search.max_source), min(target, self.config.search.max_source)

    def _task(self, wishes: Wishes, options: dict[str, Any], align: bool, token_scores: bool) -> Task:
        """What an engine is told for every line; an engine must be able to do it."""
        self.check_source()
        chosen = search_options(self.config, options)
        forbidden = wishes.forbidden(self.files.tokenizers.target)
        if forbidden:
            chosen = replace(chosen, forbidden=(*chosen.forbidden, *forbidden))
        if wishes.glossary and chosen.sampled:
            raise SightlineError("a glossary needs beam search: sampling cannot promise its terms")
        task = Task(chosen, self.config.alignment, align=align, token_scores=token_scores or wishes.checks)
        told = _for_engine(task)
        # Another engine may do for the lines that ask for something; if there is none, better now than in their midst.
        self.engines.for_task(told if len(self.engines.names()) > 1 else replace(told, requests=(wishes.most,)))
        return task

    def _chunk(
        self, lines: list[str], wishes: Wishes, task: Task, place: _Place, watch: Watch
    ) -> Iterator[Translation]:
        encoded, failure = self._encode(lines, place)
        # A line that holds nothing is nothing in any language.
        full = [index for index, ids in enumerate(encoded) if len(ids) > 1]
        watch(len(encoded) - len(full))
        work = [(lines[index], encoded[index]) for index in full]
        requests: tuple[Request, ...] = ()
        if wishes.of_sentences:
            asked = [(place.first + index, lines[index], encoded[index]) for index in full]
            requests = self._requests(asked, wishes, task, place.name)
        made = self._made(work, wishes, replace(task, requests=requests), watch)
        if wishes.checks:
            made = self._checked(made, work, wishes, replace(task, requests=requests))
        done = dict(zip(full, made, strict=True))
        # All lines' records have the same fields, also of those without a word.
        fields: dict[str, Any] = {"flags": []} if wishes.checks else {}
        fields |= {"terms": []} if wishes.glossary else {}
        for index in range(len(encoded)):
            yield done.get(index) or replace(nothing(lines[index], task.align), **fields)
        if failure is not None:
            raise failure

    def _requests(
        self, asked: Sequence[tuple[int, str, list[int]]], wishes: Wishes, task: Task, name: str
    ) -> tuple[Request, ...]:
        """What lines, given by their numbers, texts and ids, are asked for; each must have room in its translation."""
        requests = []
        for number, line, ids in asked:
            tokenizer = self.files.tokenizers.opened(line).target
            request = wishes.request(line, number, tokenizer)
            reason = no_room(request, task.options, len(ids), tokenizer)
            if reason is not None:
                raise SightlineError(f"{name}, line {number}: {reason}")
            requests.append(request)
        return tuple(requests)

    def _made(
        self, work: Sequence[tuple[str, list[int]]], wishes: Wishes, task: Task, watch: Watch
    ) -> list[Translation]:
        """Translations of lines and their ids, in their order."""
        told = _for_engine(task)
        found = self.engines.search([ids for _, ids in work], told, watch)
        kept: list[list[tuple[Translation, Hypothesis]]] = []
        for (line, _), hypotheses in zip(work, found, strict=True):
            every = [(self._translation(line, hypothesis, wishes), hypothesis) for hypothesis in hypotheses]
            if task.options.strategy == "mbr":
                order = wishes.ranked(hypotheses, [one.text for one, _ in every], task.options.sampled)
                every = [every[place] for place in order[: task.options.n_best]]
            kept.append(every)
        flat = [pair for every in kept for pair in every]
        rest = iter(self._aligned(flat) if task.align else [one for one, _ in flat])
        result = []
        for every in kept:
            best, *others = [next(rest) for _ in every]
            result.append(replace(best, others=others) if others else best)
        return result

    def _checked(
        self, made: list[Translation], work: list[tuple[str, list[int]]], wishes: Wishes, task: Task
    ) -> list[Translation]:
        """The translations with the signs that they are bad; with `retry`, the better of two attempts at those."""
        from sightline import expectations
        from sightline.failures import detect
        from sightline.retries import with_retries

        expected = expectations.load(self.files.path)
        if not wishes.retry:
            return [replace(one, flags=detect(one, expected)) for one in made]

        def again(places: Sequence[int], settings: SearchOptions) -> list[Translation]:
            requests = tuple(task.requests[place] for place in places) if task.requests else ()
            part = replace(task, options=settings, requests=requests)
            return self._made([work[place] for place in places], wishes, part, lambda count: None)

        return with_retries(self, made, task.options, expected, again, task.requests)

    def _encode(self, lines: list[str], place: _Place) -> tuple[list[list[int]], SightlineError | None]:
        """Ids with their end symbols of the lines before the first that is too long, and what is wrong with that."""
        most, _ = self._most_tokens()
        encoded: list[list[int]] = []
        for number, line in enumerate(lines, place.first):
            ids = self.files.tokenizers.opened(line).source.encode(line)
            try:
                self._check_line(line, ids, most, f"{place.name}, line {number}")
            except SightlineError as error:
                return encoded, error
            encoded.append([*ids, EOS])
        return encoded, None

    def _translation(self, line: str, hypothesis: Hypothesis, wishes: Wishes) -> Translation:
        tokenizer = self.files.tokenizers.opened(line).target
        text = tokenizer.decode(hypothesis.tokens)
        return Translation(
            source=line,
            text=text,
            score=hypothesis.score,
            log_prob=hypothesis.log_prob,
            ids=hypothesis.tokens,
            tokens=tokenizer.names(hypothesis.tokens),
            token_log_probs=hypothesis.token_log_probs,
            finished=hypothesis.finished,
            terms=wishes.glossary.honoured(line, text, tokenizer) if wishes.glossary else None,
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
                    dividers=forced.dividers,
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
        return forced_pair(pair, [rows[None]], hypothesis.token_log_probs, self.config.model)


def load(
    folder: str | Path,
    device: str | None = None,
    engine: str = AUTO,
    compute: str | None = None,
    shortlist: bool = True,
) -> Translator:
    """Loads a model folder.

    `device` is torch's name for one (default: a GPU if there is one). `engine` is the name of an engine, or "auto":
    the fastest that can do what it is asked. `compute` is the type to compute in (default: float32, or what an
    export was quantised to): int8 is faster and nearly as good. `shortlist`: whether to use the lexical shortlist
    that an export may have.
    """
    files = open_files(Path(folder))
    engines = Engines(files, engine, device, compute, shortlist)
    engines.first()
    return Translator(files, engines)


def _for_engine(task: Task) -> Task:
    """The task as an engine sees it: choosing by minimum Bayes risk is done on text, so it gives all candidates."""
    options = task.options
    if options.strategy != "mbr" or options.sampled:
        return task
    return replace(task, options=replace(options, strategy="beam", n_best=options.beam))


def search_options(config: RunConfig, options: dict[str, Any]) -> SearchOptions:
    """The search section with the caller's options on top, and no longer than the model's parts can write."""
    fields = SearchOptions.__dataclass_fields__
    for name in options:
        if name not in fields:
            raise SightlineError(
                f"unknown option '{name}' for translating; {nearest(name, ['align', *fields, *NAMES])}"
            )
    chosen = {name: value for name, value in config.search.model_dump().items() if name in fields}
    chosen |= {name: value for name, value in options.items() if value is not None}
    strategy = chosen.get("strategy")
    if strategy == "greedy":
        SearchOptions(**chosen)  # tells what greedy search cannot do by its own name
        # The rest is the same by another name, which every engine knows.
        chosen |= {"strategy": "beam", "beam": 1}
    elif strategy in (None, "beam", "mbr") and 1 <= chosen["beam"] < chosen.get("n_best", 1):
        chosen["beam"] = chosen["n_best"]
    _, most = most_tokens(config.model)
    chosen["max_length"] = min(most, chosen.get("max_length", most))
    return SearchOptions(**chosen)


def _check_length(ids: list[int], most: int, where: str) -> None:
    reason = _too_long(ids, most)
    if reason is not None:
        raise SightlineError(f"{where}: {reason}")


def _too_long(ids: list[int], most: int) -> str | None:
    if (length := longest_part(ids)) <= most:
        return None
    return f"{length:,} tokens, more than the {most:,} that this model takes at once: split the line into sentences"


def _chunks(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    chunk: list[str] = []
    for line in lines:
        chunk.append(line)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
