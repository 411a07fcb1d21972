"""One call from text to text: `sightline.load(folder).translate("…")`.

No torch here: an engine imports what it needs. What only some translations need is imported when they do, since a first
translation waits for every import.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np

from sightline import links
from sightline.bundled_models import locate
from sightline.config import AlignmentConfig, RunConfig
from sightline.engines.base import Task, Watch
from sightline.engines.choice import AUTO, Engines
from sightline.errors import SightlineError
from sightline.folder import ModelFiles, open_files
from sightline.forced import NO_ATTENTION, Forced, encode_pair, has_attention
from sightline.hypothesis import Hypothesis, Request, SearchOptions
from sightline.limits import most_tokens
from sightline.search_options import search_options
from sightline.sentences import Part, Preparation, preparation, unprepared
from sightline.streams import text_parts
from sightline.text import EOS
from sightline.translation import Translation, nothing
from sightline.wishes import Wishes, no_room, read_wishes

NO_SOURCE = (
    "a language model has nothing to translate: `sightline generate` writes with it, and `sightline evaluate --text` "
    "and `sightline score --text` tell how probable a text is"
)
# So many lines are sorted by length together: of those that come one after the other, since more would batch a little
# better and answer later, and of those that are all there.
LINES_AT_ONCE, LINES_OF_LIST = 2_000, 20_000


@dataclass(frozen=True)
class _Place:
    """Where lines come from: a file's name, and their numbers in it."""

    name: str
    numbers: Sequence[int]


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

        Options: `align` (True: word links and attention weights too), `token_scores` (True), all of `SearchOptions`
        (`strategy`, `beam`, `n_best`, `samples`, `no_repeat` …) and of `Wishes` (`prefix`, `glossary`, `forbid` …).
        """
        options = {"align": True, "token_scores": True, **options}
        if isinstance(text, str):
            return next(self.stream([text], **options))
        return list(self.stream(text, **options))

    def live(self, text: str, **options: Any) -> Iterator[str]:
        """The translation of one sentence as it is made: parts of its text, each as soon as it is certain.

        Greedy search and one sample are certain of every token; a beam of what its hypotheses agree on. Options are
        those of `translate`, but for what needs the whole.
        """
        wishes, rest = read_wishes(options)
        task = self._task(wishes, rest, align=False, token_scores=False)
        begun = False
        for part in self._parts([text], [1], wishes)[0]:
            # A part of which nothing comes has no space before it either.
            gap = part.gap if begun else ""
            for shown in [part.text] if part.told is None else self._live(part.told, wishes, task):
                yield gap + (shown.upper() if part.large else shown)
                begun, gap = True, ""

    def _live(self, text: str, wishes: Wishes, task: Task) -> Iterator[str]:
        encoded, failure = self._encode([text], _Place("text", [1]))
        if failure is not None:
            raise failure
        if len(encoded[0]) == 1:
            return
        (request,) = self._requests([(1, text, encoded[0])], wishes, task, "text")
        parts = self.engines.inside().live(encoded[0], replace(task, requests=(request,)))
        yield from text_parts(self.files.tokenizers.opened(text).target, parts)

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

        `token_scores` asks for the log-probability of each token and for exact scores, maybe by a second pass; without
        it a score may be a little off, or nan where it would cost time. Other options are those of `translate`. Errors
        tell of a line by `name` and by its number, counted from `first`; the lines before it come out. `watch` is told,
        batch by batch, how many lines more are done.
        """
        wishes, rest = read_wishes(options)
        task = self._task(wishes, rest, align, token_scores)
        for chunk in _chunks(lines, LINES_OF_LIST if isinstance(lines, Sequence) else LINES_AT_ONCE):
            place = _Place(name, range(first, first + len(chunk)))
            yield from (self._prepared if self.preparation else self._chunk)(chunk, wishes, task, place, watch)
            first += len(chunk)

    def check_lines(self, lines: Sequence[str], name: str) -> None:
        """Refuses source lines that are too long, by their file and number; none is where sentences are split."""
        if not self.config.search.split_sentences:
            self.check_pairs([(line, "") for line in lines], name, "")

    def check_pairs(self, pairs: Sequence[tuple[str, str]], source_name: str, target_name: str, first: int = 1) -> None:
        """Refuses lines that are too long, by their file and number, counted from `first`."""
        most_source, most_target = self._most_tokens()
        tokenizers = self.files.tokenizers
        for number, (source, target) in enumerate(pairs, first):
            _check_length(tokenizers.source.encode(source), most_source, f"{source_name}, line {number}")
            _check_length(tokenizers.target.encode(target), most_target, f"{target_name}, line {number}")

    def refusal(self, line: str) -> str | None:
        """Why a source line cannot be translated: it is too long. None when it can, or can in parts."""
        if self.config.search.split_sentences:
            return None
        most, _ = self._most_tokens()
        return _too_long(self.files.tokenizers.source.encode(line), most)

    def check_source(self) -> None:
        """Refuses a model that reads no source."""
        if not self.config.model.has_source:
            raise SightlineError(f"{self.files.path}: {NO_SOURCE}")

    def check_attention(self) -> None:
        """Refuses a model that has no alignment to show."""
        if not has_attention(self.config.model):
            raise SightlineError(f"{self.files.path}: {NO_ATTENTION}")

    def force(self, pairs: Sequence[tuple[str, str | list[int]]]) -> list[Forced]:
        """What the model sees of pairs whose targets are given, as text or as ids: all its layers and heads."""
        return self.engines.inside().force(pairs)

    def look(self, lines: Sequence[str]) -> list[Forced]:
        """What the model sees of lines and its own translations of them: all its layers and heads."""
        parts = self._parts(lines, range(1, len(lines) + 1), Wishes())
        plain = Translator(replace(self.files, config=unprepared(self.config)), self.engines)
        told = [part.told for each in parts for part in each if part.told is not None]
        seen = self.force([(one.source, one.ids) for one in plain.stream(told)])
        if self.preparation is None:
            return seen
        from sightline.whole_lines import joined_forced

        # A line of which all is copied has as many layers and heads as others, all blank.
        heads = [len(layer) for layer in (seen or self.force([("", "")]))[0].sentence.layers]
        rest = iter(seen)
        every = [[None if part.told is None else next(rest) for part in each] for each in parts]
        return [
            joined_forced(each, of_parts, self.files.tokenizers, heads)
            for each, of_parts in zip(parts, every, strict=True)
        ]

    def aligning_by(self, alignment: AlignmentConfig) -> Translator:
        """The same model with another choice of the weights that tell its alignment."""
        config = self.config.model_copy(update={"alignment": alignment})
        return Translator(replace(self.files, config=config), self.engines)

    @cached_property
    def preparation(self) -> Preparation | None:
        """How lines are prepared; None when they are translated as they are."""
        tokenizer = self.files.tokenizers.source
        return preparation(self.config, self._most_tokens()[0], lambda text: len(tokenizer.encode(text)))

    def _parts(self, lines: Sequence[str], numbers: Sequence[int], wishes: Wishes) -> list[list[Part]]:
        """The parts of each line; one whose translation begins as someone wishes is left whole."""
        return [
            [Part("", line, line)]
            if self.preparation is None or wishes.begins(number)
            else self.preparation.parts(line)
            for number, line in zip(numbers, lines, strict=True)
        ]

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

    def _prepared(
        self, lines: list[str], wishes: Wishes, task: Task, place: _Place, watch: Watch
    ) -> Iterator[Translation]:
        """Translations of lines by way of those of their parts."""
        from sightline.whole_lines import joined, spread

        parts = self._parts(lines, place.numbers, wishes)
        work = [
            (number, part.told)
            for number, each in zip(place.numbers, parts, strict=True)
            for part in each
            if part.told is not None
        ]
        numbers = [number for number, _ in work]
        told, watch = [text for _, text in work], spread(watch, len(lines), len(work))
        made = self._chunk(told, wishes, task, _Place(place.name, numbers), watch)
        empty = _nothing("", task, wishes)
        for line, each in zip(lines, parts, strict=True):
            of_parts = [None if part.told is None else next(made) for part in each]
            yield joined(line, each, of_parts, self.files.tokenizers, empty)

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
            asked = [(place.numbers[index], lines[index], encoded[index]) for index in full]
            requests = self._requests(asked, wishes, task, place.name)
        made = self._made(work, wishes, replace(task, requests=requests), watch)
        if wishes.checks:
            made = self._checked(made, work, wishes, replace(task, requests=requests))
        done = dict(zip(full, made, strict=True))
        for index in range(len(encoded)):
            yield done.get(index) or _nothing(lines[index], task, wishes)
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
        for number, line in zip(place.numbers, lines, strict=True):
            ids = self.files.tokenizers.opened(line).source.encode(line)
            try:
                _check_length(ids, most, f"{place.name}, line {number}")
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


def load(
    folder: str | Path,
    device: str | None = None,
    engine: str = AUTO,
    compute: str | None = None,
    shortlist: bool = True,
    split: bool | None = None,
) -> Translator:
    """Loads a model folder, or a model that comes with Sightline by its name.

    `device` is torch's name for one (default: a GPU if there is one). `engine` is the name of an engine, or "auto":
    the fastest that can do what it is asked. `compute` is the type to compute in (default: float32, or what an
    export was quantised to): int8 is faster and nearly as good. `shortlist`: whether to use the lexical shortlist
    that an export may have. `split`: whether to translate the sentences of a line one by one (default: as the model's
    configuration says).
    """
    files = open_files(locate(folder))
    if split is not None:
        search = files.config.search.model_copy(update={"split_sentences": split})
        files = replace(files, config=files.config.model_copy(update={"search": search}))
    engines = Engines(files, engine, device, compute, shortlist)
    engines.first()
    return Translator(files, engines)


def _nothing(line: str, task: Task, wishes: Wishes) -> Translation:
    """The translation of a line that holds nothing; its record has the same fields as those of others."""
    fields: dict[str, Any] = {"flags": []} if wishes.checks else {}
    fields |= {"terms": []} if wishes.glossary else {}
    return replace(nothing(line, task.align), **fields)


def _for_engine(task: Task) -> Task:
    """The task as an engine sees it: choosing by minimum Bayes risk is done on text, so it gives all candidates."""
    options = task.options
    if options.strategy != "mbr" or options.sampled:
        return task
    return replace(task, options=replace(options, strategy="beam", n_best=options.beam))


def _check_length(ids: list[int], most: int, where: str) -> None:
    reason = _too_long(ids, most)
    if reason is not None:
        raise SightlineError(f"{where}: {reason}")


def _too_long(ids: list[int], most: int) -> str | None:
    if len(ids) <= most:
        return None
    return f"{len(ids):,} tokens, more than the {most:,} that this model takes at once: split the line into sentences"


def _chunks(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    chunk: list[str] = []
    for line in lines:
        chunk.append(line)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
