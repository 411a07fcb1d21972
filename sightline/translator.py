"""One call from text to text: `sightline.load(folder).translate("…")`.

No torch here: an engine imports what it needs. What only some translations need is imported when they do, since a first
translation waits for every import.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack, overload

from sightline.bundled_models import locate
from sightline.config import AlignmentConfig, RunConfig
from sightline.engines.base import Task, Watch
from sightline.engines.choice import AUTO, Engines
from sightline.errors import SightlineError
from sightline.folder import ModelFiles, open_files
from sightline.forced import NO_ATTENTION, Forced, has_alignment, has_attention, has_step_weights
from sightline.hypothesis import Hypothesis, SearchOptions
from sightline.later import NO_SIGHT, Found, sights, with_later
from sightline.limits import most_tokens
from sightline.options import LiveOptions, Options, StreamOptions
from sightline.plan import Asked, Plan, search_options, too_long
from sightline.sentences import preparation
from sightline.source_texts import check_count, joined_line
from sightline.streams import text_parts
from sightline.translation import Translation
from sightline.wishes import PER_LINE, Wishes, read_wishes

NO_SOURCE = (
    "a language model has nothing to translate: `sightline generate` writes with it, and `sightline evaluate --text` "
    "and `sightline score --text` tell how probable a text is"
)
# So many lines are sorted by length together: of those that come one after the other, since more would batch a little
# better and answer later, and of those that are all there.
LINES_AT_ONCE, LINES_OF_LIST = 2_000, 20_000


Line = str | tuple[str, ...]


@dataclass(frozen=True)
class _Place:
    """Where lines come from: a file's name, and the number of the first."""

    name: str
    first: int

    def error(self, number: int, reason: Exception) -> SightlineError:
        """What is wrong with line `number`, told with where it is."""
        return SightlineError(f"{self.name}, line {number}: {reason}")


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
    def translate(self, text: str, **options: Unpack[Options]) -> Translation: ...  # type: ignore[overload-overlap]
    @overload
    def translate(self, text: Iterable[Line], **options: Unpack[Options]) -> list[Translation]: ...
    def translate(self, text: str | Iterable[Line], **options: Unpack[Options]) -> Translation | list[Translation]:
        """Translates one sentence, or several at once.

        The sources of a model that reads several are a tuple, or one line with tabs between them.

        Text and tokens are there when it returns. Scores and alignments, which may take another pass and torch, are
        worked out when they are first looked at, unless `align` or `token_scores` say otherwise. `Options` tells of all
        options.
        """
        given: object = text
        if not isinstance(given, Iterable) or isinstance(given, bytes):
            raise SightlineError(f"give a text, or a list of texts, to translate, not {type(text).__name__}")
        lines: Sequence[Line] = [text] if isinstance(text, str) else list(text)
        plan = self.plan(**options)
        plan.check_count(len(lines))
        found = list(self.streamed(lines, plan))
        return found[0] if isinstance(text, str) else found

    def live(self, text: Line, **options: Unpack[LiveOptions]) -> Iterator[str]:
        """The translation of one sentence as it is made: parts of its text, each as soon as it is certain.

        Greedy search and one sample are certain of every token; a beam of what its hypotheses agree on. What needs the
        whole, or the text of several translations, is refused, and so is an engine that cannot stop half-way.
        """
        return self.shown(joined_line(text), self.live_plan(**options))

    def live_plan(self, **options: Any) -> Plan:
        """What `live` is asked for, checked: for `shown`, which may have many lines to show."""
        plan = self.plan(align=False, token_scores=False, **options)
        search, wishes = plan.task.options, plan.wishes
        wrong = {
            "strategy mbr": search.strategy == "mbr",
            "several samples": search.samples > 1,
            f"groups={search.groups}": search.groups > 1,
            f"n_best={search.n_best}": search.n_best > 1,
            "check": wishes.check,
            "retry": wishes.retry,
        }
        named = next((name for name, asked in wrong.items() if asked), None)
        if named is not None:
            raise SightlineError(
                f"a translation cannot be shown while it is made with {named}: that needs the whole of it, or several"
            )
        self.engines.check_live()
        return plan

    def shown(self, line: str, plan: Plan, number: int = 1, name: str = "text") -> Iterator[str]:
        """Parts of the translation of line `number` of what is called `name`, as they become certain."""
        try:
            asked = plan.read(line, number)
        except SightlineError as error:
            raise _Place(name, 1).error(number, error) from None
        return self._shown_parts(asked, plan) if asked.parts else self._shown(asked, plan)

    def _shown(self, asked: Asked, plan: Plan) -> Iterator[str]:
        if asked.holds_nothing:
            begun = plan.begun(asked)
            return iter([begun] if begun else [])
        task = plan.told([asked])
        parts = self.engines.inside().live(asked.ids, plan.enlarging(task) if asked.capitals else task)
        return text_parts(self.files.tokenizers.opened(asked.line).target, parts)

    def _shown_parts(self, asked: Asked, plan: Plan) -> Iterator[str]:
        begun = False
        for part, own in asked.parts:
            # A part of which nothing comes has no space before it either.
            gap = part.gap if begun or "\t" in part.gap else ""
            for shown in [part.text] if own is None else self._shown(own, plan):
                yield gap + (shown.upper() if part.large else shown)
                begun, gap = True, ""

    def stream(
        self,
        lines: Iterable[Line],
        align: bool | None = False,
        name: str = "input",
        first: int = 1,
        watch: Watch = lambda count: None,
        token_scores: bool | None = False,
        **options: Unpack[StreamOptions],
    ) -> Iterator[Translation]:
        """Translates lines as they come, in their order.

        `token_scores` asks for the log-probability of each token and for exact scores, maybe by a second pass; without
        it a score may be a little off, or nan where it would cost time. Other options are those of `translate`. Errors
        tell of a line by `name` and by its number, counted from `first`; the lines before it come out. `watch` is told,
        batch by batch, how many lines more are done.
        """
        plan = self.plan(align=align, token_scores=token_scores, **options)
        return self.streamed(lines, plan, name, first, watch)

    def plan(self, **options: Unpack[Options]) -> Plan:
        """What options ask for, read and checked: for `streamed` and `translated`, again and again."""
        align, token_scores = options.pop("align", None), options.pop("token_scores", None)
        self.check_source()
        wishes, rest = read_wishes(options)
        chosen = search_options(self.config, rest)
        wishes.check_options(chosen)
        if chosen.coverage_penalty and not has_step_weights(self.config.model):
            raise SightlineError("coverage_penalty needs attention weights and this model gives none: set it to 0")
        if not self.files.tokenizers.open:
            wishes.check_spelling(self.files.tokenizers.target)
        forbidden = wishes.forbidden(self.files.tokenizers.target)
        folds = self.config.search.fold_capitals
        enlarged = wishes.forbidden(self.files.tokenizers.target, enlarged=True) if folds else ()
        if forbidden:
            chosen = replace(chosen, forbidden=(*chosen.forbidden, *forbidden))
        scores = token_scores or wishes.checks or (token_scores is None and chosen.n_best > 1)
        # Some checks read attention; where an engine gives it with its search, that costs nothing.
        looks = bool(align) or (wishes.checks and has_attention(self.config.model))
        task = Task(chosen, self.config.alignment, align=looks, token_scores=bool(scores))
        told = _for_engine(task)
        # Another engine may do for the lines that ask for something; if there is none, better now than in their midst.
        self.engines.for_task(told if len(self.engines.names()) > 1 else replace(told, requests=(wishes.most,)))
        most, _ = self._most_tokens()
        lists = tuple(name for name in PER_LINE if options.get(name) is not None)
        encode = self.files.tokenizers.source.encode
        letters = self.files.tokenizers.source.letters
        prepared = preparation(self.config, most, lambda text: len(encode(text)), letters)
        asking = (align, token_scores, lists)
        return Plan(self.files.tokenizers, wishes, task, most, *asking, preparation=prepared, enlarged=enlarged)

    def streamed(
        self,
        lines: Iterable[Line],
        plan: Plan,
        name: str = "input",
        first: int = 1,
        watch: Watch = lambda count: None,
    ) -> Iterator[Translation]:
        """Like `stream`, with a plan that was made before."""
        place = _Place(name, first)
        number = first
        for chunk in _chunks(map(joined_line, lines), LINES_OF_LIST if isinstance(lines, Sequence) else LINES_AT_ONCE):
            asked: list[Asked] = []
            failure: SightlineError | None = None
            for line in chunk:
                try:
                    asked.append(plan.read(line, number))
                except SightlineError as error:
                    failure = place.error(number, error)
                    break
                number += 1
            yield from self.translated(asked, plan, watch)
            if failure is not None:
                raise failure

    def read(self, lines: Sequence[str], plan: Plan, name: str) -> list[Asked]:
        """All of a file's lines, for `translated`; the first that cannot be translated is an error."""
        place = _Place(name, 1)
        found = []
        for number, line in enumerate(lines, 1):
            try:
                found.append(plan.read(line, number))
            except SightlineError as error:
                raise place.error(number, error) from None
        return found

    def translated(
        self, asked: Sequence[Asked], plan: Plan, watch: Watch = lambda count: None
    ) -> Iterator[Translation]:
        """Translations of lines that were read by the plan, in their order."""
        every = [part for one in asked for part in one.every]
        if len(every) != len(asked):
            from sightline.whole_lines import spread

            watch = spread(watch, len(asked), len(every))
        full = [one for one in every if not one.holds_nothing]
        watch(len(every) - len(full))
        made = self._made(full, plan, plan.told(full), watch)
        if plan.wishes.checks:
            made = self._checked(made, full, plan)
        rest = iter(made)
        done = (plan.nothing(one) if one.holds_nothing else next(rest) for one in every)
        for one in asked:
            yield self._joined(one, plan, done) if one.parts else next(done)

    def _joined(self, asked: Asked, plan: Plan, done: Iterator[Translation]) -> Translation:
        """The translation of a line of several parts, of which the next ones are."""
        from sightline.whole_lines import joined

        parts = [part for part, _ in asked.parts]
        found = [None if own is None else next(done) for _, own in asked.parts]
        return joined(parts, found, self.files.tokenizers, plan.nothing(asked))

    def check_lines(self, lines: Sequence[str], name: str) -> None:
        """Refuses source lines that are too long, by their file and number; none is where sentences are split."""
        if not self.config.search.split_sentences:
            self.check_pairs([(line, "") for line in lines], name, "")

    def check_pairs(self, pairs: Sequence[tuple[str, str]], source_name: str, target_name: str, first: int = 1) -> None:
        """Refuses lines that are too long, by their file and number, counted from `first`."""
        most_source, most_target = self._most_tokens()
        tokenizers = self.files.tokenizers
        for number, (source, target) in enumerate(pairs, first):
            check_count(source, self.config.model.source_count, f"{source_name}, line {number}")
            _check_length(tokenizers.source.encode(source), most_source, f"{source_name}, line {number}")
            _check_length(tokenizers.target.encode(target), most_target, f"{target_name}, line {number}")

    def check_source(self) -> None:
        """Refuses a model that reads no source."""
        if not self.config.model.has_source:
            raise SightlineError(f"{self.files.path}: {NO_SOURCE}")

    def check_attention(self) -> None:
        """Refuses a model that has no alignment to show."""
        if not has_alignment(self.config.model):
            raise SightlineError(f"{self.files.path}: {NO_ATTENTION}")

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

    def _made(self, work: Sequence[Asked], plan: Plan, task: Task, watch: Watch) -> list[Translation]:
        """Translations of lines that hold something, in their order."""
        found = self._searched(work, plan, _for_engine(task), watch)
        kept: list[list[Found]] = []
        for asked, hypotheses in zip(work, found, strict=True):
            every = [(self._translation(asked, hypothesis, plan.wishes), hypothesis) for hypothesis in hypotheses]
            if task.options.strategy == "mbr":
                order = plan.wishes.ranked(hypotheses, [one.text for one, _ in every], task.options.sampled)
                every = [every[place] for place in order[: task.options.n_best]]
            kept.append(every)
        flat = [pair for every in kept for pair in every]
        later = with_later(self, flat, task.options, plan.align is None, plan.token_scores is None)
        if plan.align:
            seen = sights(self, flat)
            later = [one.changed(**sight._asdict()) for one, sight in zip(later, seen, strict=True)]
        elif plan.wishes.checks:
            later = self._best_seen(later, kept)
        rest = iter(later)
        result = []
        for every in kept:
            best, *others = [next(rest) for _ in every]
            result.append(best.changed(others=others) if others else best)
        return result

    def _searched(self, work: Sequence[Asked], plan: Plan, task: Task, watch: Watch) -> list[list[Hypothesis]]:
        """Hypotheses of each line. What will be written in capitals is searched apart where more is forbidden to it."""
        large = {place for place, one in enumerate(work) if one.capitals and plan.enlarged}
        if not large:
            return self.engines.search([one.ids for one in work], task, watch)
        found: dict[int, list[Hypothesis]] = {}
        for part, own in ((sorted({*range(len(work))} - large), task), (sorted(large), plan.enlarging(task))):
            asked = replace(own, requests=tuple(task.requests[place] for place in part) if task.requests else ())
            found.update(zip(part, self.engines.search([work[place].ids for place in part], asked, watch), strict=True))
        return [found[place] for place in range(len(work))]

    def _best_seen(self, every: list[Translation], kept: Sequence[Sequence[Found]]) -> list[Translation]:
        """The translations, of which the best of each line have what checks look at: words and weights."""
        firsts, place = [], 0
        for found in kept:
            firsts.append(place)
            place += len(found)
        seen = sights(self, [found[0] for found in kept])
        result = list(every)
        for first, sight in zip(firsts, seen, strict=True):
            result[first] = result[first].changed(**sight._asdict())
        return result

    def _checked(self, made: list[Translation], work: Sequence[Asked], plan: Plan) -> list[Translation]:
        """The translations with the signs that they are bad; with `retry`, the better of two attempts at those."""
        from sightline import expectations
        from sightline.failures import OF_ATTENTION, detect
        from sightline.retries import with_retries

        expected = expectations.load(self.files.path)
        if not has_attention(self.config.model):
            expected = replace(expected, unchecked=expected.unchecked | OF_ATTENTION)
        if not plan.wishes.retry:
            return [_only_asked(one.changed(flags=detect(one, expected)), plan) for one in made]

        def again(places: Sequence[int], settings: SearchOptions) -> list[Translation]:
            part = [work[place] for place in places]
            return self._made(part, plan, replace(plan.told(part), options=settings), lambda count: None)

        requests = plan.told(work).requests
        found = with_retries(self, made, plan.task.options, expected, again, requests)
        return [_only_asked(one, plan) for one in found]

    def _translation(self, asked: Asked, hypothesis: Hypothesis, wishes: Wishes) -> Translation:
        tokenizer = self.files.tokenizers.opened(asked.line).target
        text = tokenizer.decode(hypothesis.tokens)
        return Translation(
            source=asked.line,
            text=text,
            score=hypothesis.score,
            log_prob=hypothesis.log_prob,
            ids=hypothesis.tokens,
            tokens=tokenizer.names(hypothesis.tokens),
            token_log_probs=hypothesis.token_log_probs,
            finished=hypothesis.finished,
            **wishes.outcomes(asked.capitals or asked.line, asked.place, text, tokenizer, bool(asked.capitals)),
        )


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


def _for_engine(task: Task) -> Task:
    """The task as an engine sees it: choosing by minimum Bayes risk is done on text, so it gives all candidates."""
    options = task.options
    if options.strategy != "mbr" or options.sampled:
        return task
    return replace(task, options=replace(options, strategy="beam", n_best=options.beam))


def _only_asked(one: Translation, plan: Plan) -> Translation:
    """A translation without the alignment that only checks looked at, its two attempts too."""
    if plan.align is not False:
        return one
    attempts = {name: getattr(one, name) for name in ("first", "retry")}
    bare = {name: _only_asked(attempt, plan) for name, attempt in attempts.items() if attempt is not None}
    return one.changed(**NO_SIGHT._asdict(), **bare)


def _check_length(ids: list[int], most: int, where: str) -> None:
    reason = too_long(ids, most)
    if reason is not None:
        raise SightlineError(f"{where}: {reason}")


def _chunks(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    chunk: list[str] = []
    for line in lines:
        chunk.append(line)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
