"""One call from text to text: `sightline.load(folder).translate("…")`.

Shapes: B sentences, L layers, H heads, T target tokens, S source tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray

from sightline import links
from sightline.align import NO_ATTENTION, force, is_cross_attention
from sightline.batch import Batch, pad
from sightline.config import RunConfig
from sightline.data import ordered_batches
from sightline.decoders import TransformerDecoder
from sightline.errors import SightlineError, nearest
from sightline.folder import ModelFolder, load_folder
from sightline.hypothesis import Hypothesis, SearchOptions
from sightline.models import most_tokens
from sightline.performance import threads
from sightline.search import search
from sightline.text import EOS, PAD

# So many lines are sorted by length together; larger would batch a little better and answer later.
LINES_AT_ONCE = 2_000
# The beam that `search.batch_tokens` is meant for: wider ones get smaller batches.
BUDGETED_BEAM = 5

Watch = Callable[[int], None]


@dataclass(frozen=True)
class _Place:
    """Where lines come from: a file's name, and the number of the first."""

    name: str
    first: int


@dataclass(frozen=True)
class Translation:
    """What became of one line.

    `score` ranks translations of one source (penalties included), `log_prob` is the sum over tokens. `ids` and
    `tokens` are the model's pieces. `links` are pairs (source word, target word) of `source_words` and `words`; they
    and `weights`, the attention (words, source words) they were read from, are there when an alignment was asked for.
    `others` are the rest of the n best.
    """

    source: str
    text: str
    score: float
    log_prob: float
    ids: list[int]
    tokens: list[str]
    token_log_probs: list[float]
    finished: bool
    words: list[str] = field(default_factory=list)
    source_words: list[str] = field(default_factory=list)
    links: list[tuple[int, int]] | None = None
    weights: NDArray[np.float64] | None = None
    others: list[Translation] = field(default_factory=list)

    @property
    def alignment(self) -> str | None:
        """The links as Pharaoh's `0-0 1-2`, source first."""
        return None if self.links is None else links.to_pharaoh(self.links)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values: dict[str, Any] = {
            "source": self.source,
            "text": self.text,
            "score": self.score,
            "log_prob": self.log_prob,
            "tokens": self.tokens,
            "token_log_probs": self.token_log_probs,
            "finished": self.finished,
        }
        if self.links is not None:
            values |= {"source_words": self.source_words, "words": self.words, "alignment": self.alignment}
        if self.others:
            values["others"] = [other.as_dict() for other in self.others]
        return values


class Translator:
    """A model folder, ready to use."""

    def __init__(self, folder: ModelFolder, device: torch.device) -> None:
        self.folder, self.device = folder, device
        self.model = folder.model

    @property
    def config(self) -> RunConfig:
        """The configuration the model was trained with."""
        return self.folder.config

    @property
    def name(self) -> str:
        """The name of the model's folder."""
        return self.folder.path.resolve().name

    @overload
    def translate(self, text: str, **options: Any) -> Translation: ...
    @overload
    def translate(self, text: Sequence[str], **options: Any) -> list[Translation]: ...
    def translate(self, text: str | Sequence[str], **options: Any) -> Translation | list[Translation]:
        """Translates one sentence, or several at once.

        Options: `align` (True: word links and attention weights too), `beam`, `n_best`, and the other keys of the
        `search` section: `length_penalty`, `alpha`, `coverage_penalty`, `min_length`, `max_ratio`, `max_extra`.
        """
        options = {"align": True, **options}
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
        **options: Any,
    ) -> Iterator[Translation]:
        """Translates lines as they come, in their order.

        Errors tell of a line by `name` and by its number, counted from `first`; the lines before it come out.
        `watch` is told, batch by batch, how many lines more are done.
        """
        chosen = search_options(self.config, options)
        for chunk in _chunks(lines, LINES_AT_ONCE):
            yield from self._chunk(chunk, align, chosen, _Place(name, first), watch)
            first += len(chunk)

    def check_lines(self, lines: Sequence[str], name: str) -> None:
        """Refuses source lines that are too long, by their file and number."""
        self.check_pairs([(line, "") for line in lines], name, "")

    def check_pairs(self, pairs: Sequence[tuple[str, str]], source_name: str, target_name: str) -> None:
        """Refuses lines that are too long, by their file and number."""
        most_source, most_target = self._most_tokens()
        tokenizers = self.folder.tokenizers
        for number, (source, target) in enumerate(pairs, 1):
            _check_length(tokenizers.source.encode(source), most_source, f"{source_name}, line {number}")
            _check_length(tokenizers.target.encode(target), most_target, f"{target_name}, line {number}")

    def check_attention(self) -> None:
        """Refuses a model that has no alignment to show."""
        if not any(is_cross_attention(name) for name, _ in self.model.named_modules()):
            raise SightlineError(f"{self.folder.path}: {NO_ATTENTION}")

    def _most_tokens(self) -> tuple[int, int]:
        """The longest source and target, end symbols not counted: by the configuration, and by the model's parts."""
        source, target = most_tokens(self.config.model)
        return min(source, self.config.search.max_source), min(target, self.config.search.max_source)

    def _chunk(
        self, lines: list[str], align: bool, options: SearchOptions, place: _Place, watch: Watch
    ) -> Iterator[Translation]:
        most, _ = self._most_tokens()
        encoded: list[list[int]] = []
        failure: SightlineError | None = None
        for number, line in enumerate(lines, place.first):
            ids = self.folder.tokenizers.source.encode(line)
            try:
                _check_length(ids, most, f"{place.name}, line {number}")
            except SightlineError as error:
                failure = error
                break
            encoded.append([*ids, EOS])
        done: dict[int, Translation] = {}
        good = len(encoded)
        # A line that holds nothing is nothing in any language.
        full = [index for index in range(good) if len(encoded[index]) > 1]
        watch(good - len(full))
        lengths = np.array([len(encoded[index]) for index in full], dtype=np.int64)
        # A wide beam fills the memory as more sentences would.
        budget = max(1, self.config.search.batch_tokens * BUDGETED_BEAM // max(options.beam, BUDGETED_BEAM))
        for part in ordered_batches(lengths, budget):
            indices = [full[position] for position in part]
            batch = Batch((pad([encoded[index] for index in indices], PAD),)).to(self.device)
            found = self._search(batch, options)
            every = [
                self._translation(lines[index], hypothesis)
                for index, hypotheses in zip(indices, found, strict=True)
                for hypothesis in hypotheses
            ]
            rest = iter(self._aligned(every) if align else every)
            for index, hypotheses in zip(indices, found, strict=True):
                best, *others = [next(rest) for _ in hypotheses]
                done[index] = replace(best, others=others)
            watch(len(indices))
        for index in range(good):
            yield done.get(index) or _nothing(lines[index], align)
        if failure is not None:
            raise failure

    def _search(self, batch: Batch, options: SearchOptions) -> list[list[Hypothesis]]:
        decoder = self.model.decoder
        if isinstance(decoder, TransformerDecoder):
            # Only the coverage penalty needs weights at every step.
            decoder.alignment = self._coverage_head() if options.coverage_penalty else None
        with torch.inference_mode():
            return search(self.model, batch, options)

    def _coverage_head(self) -> tuple[int | None, int | None]:
        """The layer and head that the alignment is read from, as the decoder wants them."""
        assert isinstance(self.model.decoder, TransformerDecoder)
        layers = self.model.decoder.layers
        layer, head = self.config.alignment.layer, self.config.alignment.head
        heads = layers[0].cross.heads
        if (head is not None and (layer is None or not 0 <= head < heads)) or (
            layer is not None and not 0 <= layer < len(layers)
        ):
            raise SightlineError(
                f"{self.folder.path}: alignment.layer={layer} and alignment.head={head} name no head of this model: "
                f"it has {len(layers)} layers of {heads} heads, counted from 0"
            )
        return layer, head

    def _translation(self, line: str, hypothesis: Hypothesis) -> Translation:
        tokenizer = self.folder.tokenizers.target
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

    def _aligned(self, translations: list[Translation]) -> list[Translation]:
        """The same translations with word links, from one forced pass."""
        forced = force(self.folder, [(one.source, one.ids) for one in translations], self.device)
        result = []
        for one, seen in zip(translations, forced, strict=True):
            found = seen.word_links(self.config.alignment)
            result.append(
                replace(
                    one,
                    words=seen.target_words,
                    source_words=seen.source_words,
                    links=None if found is None else sorted(found),
                    weights=seen.word_weights(self.config.alignment),
                )
            )
        return result


def load(folder: str | Path, device: str | None = None) -> Translator:
    """Loads a model folder; `device` is torch's name for one (default: a GPU if there is one)."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise SightlineError(f"unknown device '{device}': try cpu or cuda") from None
    threads()
    return Translator(load_folder(Path(folder), chosen), chosen)


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
