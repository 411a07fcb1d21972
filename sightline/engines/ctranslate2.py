"""The CTranslate2 engine: the fastest on a CPU. It runs Transformers, and needs no torch.

CTranslate2's search has the same rules as ours: of the 2K best continuations those that end count when they are among
the first K, and K finished hypotheses (times `patience`) end the search. What differs is seen to here:
- it knows one length limit a call, so a batch gets its longest, and a sentence that went past its own, or was cut, is
  searched again with its own;
- it knows no sequences that are forbidden at the beginning alone: a sentence that began so is searched again;
- what it must not emit (padding, the start symbol, an end too soon) it leaves out before the softmax, which makes the
  rest a little more probable. Scores of tokens are therefore always computed anew from the whole distribution, and
  sentence scores with them; without them a score is off by the probability of padding and start, next to nothing;
- what it cannot do with our results it refuses: see `differences.py`.

An export may have a lexical shortlist. Then a search looks only at the target tokens that the sources of its batch
bring, and scores that are not computed anew are off by the probability of all others. What is given is scored by the
whole vocabulary: `token_log_probs` knows no shortlist.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sightline.config import AlignmentConfig
from sightline.data import ordered_batches
from sightline.engines.base import Ids, Task, Watch
from sightline.engines.batching import BATCH_TOKENS, SHORTLISTED_TOKENS, ahead, in_batches
from sightline.engines.differences import refusal, steered
from sightline.engines.found import Found, needed, penalty
from sightline.errors import SightlineError, nearest
from sightline.folder import ModelFiles
from sightline.hypothesis import Hypothesis, Request, SearchOptions
from sightline.interop import ctranslate2 as conversion
from sightline.interop.kept import for_ctranslate2, is_export, made_again
from sightline.interop.weights import number
from sightline.performance import available_processors, has_fast_avx512
from sightline.text import BOS, EOS, PAD

# CTranslate2 stops early, by a rule of its own, when there is no length penalty: this one is none in all but name.
NO_PENALTY = 1e-30
# It uses AVX-512 only where it is told to, and reads this when it first computes.
if has_fast_avx512():
    os.environ.setdefault("CT2_FORCE_CPU_ISA", "AVX512")


class CTranslate2Engine:
    """A model folder's weights in CTranslate2."""

    name = "ctranslate2"

    def __init__(
        self, files: ModelFiles, device: str | None = None, compute: str | None = None, shortlist: bool = True
    ) -> None:
        """`device` is cpu (default), cuda or cuda:N; `compute` the type to compute in: float32, int8, int8_float32 …

        By default that is float32, with the same results as PyTorch's, or the type that an export was quantised to.
        `shortlist`: whether to use the one that an export may have.
        """
        reason = None if is_export(files.path) else conversion.unsupported(files.config.model)
        if reason is not None:
            raise SightlineError(f"{files.path}: the ctranslate2 engine cannot run {reason}; the pytorch engine can")
        self.files, self.place = files, _place(device or "cpu")
        self.compute = compute or ("default" if is_export(files.path) else "float32")
        _check_compute(self.compute, self.place[0])
        self.source, self.about = for_ctranslate2(files)
        self.shortlisted = shortlist and self.about.shortlist is not None
        sides = files.tokenizers
        self.source_names = conversion.names(sides.source)
        self.target_names = self.source_names if sides.target is sides.source else conversion.names(sides.target)
        self.target_ids = {name: id for id, name in enumerate(self.target_names)}

    @cached_property
    def translator(self) -> Any:
        """CTranslate2's own. A kept conversion that cannot be loaded is made again, once."""
        try:
            return self._load()
        except SightlineError:
            if isinstance(self.source, dict) or is_export(self.files.path):
                raise
            self.source = made_again(self.files, self.source)
            return self._load()

    def _load(self) -> Any:
        """With a worker for each processor, since batches side by side are faster than one in parts."""
        import ctranslate2

        if isinstance(self.source, dict):
            memory: dict[str, bytes] | None = self.source
        else:
            conversion.check_vocabularies(self.source, self.source_names, self.target_names)
            memory = _read_unless_utf8(self.source)
        path = self.files.path.name.encode(errors="replace").decode() if memory else str(self.source)
        try:
            return ctranslate2.Translator(
                path,
                device=self.place[0],
                device_index=self.place[1],
                compute_type=self.compute,
                inter_threads=available_processors() if self.place[0] == "cpu" else 1,
                intra_threads=1,
                max_queued_batches=-1,
                files=memory,
            )
        except (RuntimeError, ValueError) as error:
            told = " ".join(str(error).split())
            raise SightlineError(f"{path}: CTranslate2 cannot load the model: {told}") from None

    def refuses(self, task: Task) -> str | None:
        """Everything that it cannot do with the results that the PyTorch engine gives."""
        reason = refusal(task.options, task.requests)
        if reason is not None:
            return reason
        most = task.options.limit(min(self.files.config.search.max_source + 1, self.about.positions))
        longest = max([most, *(len(request.prefix) for request in task.requests)])
        if longest >= self.about.positions:
            return f"write translations of {longest:,} tokens with {self.about.positions:,} positions"
        return None

    def search(self, sources: Sequence[Ids], task: Task, watch: Watch = lambda count: None) -> list[list[Hypothesis]]:
        """See `Engine`."""
        options = task.options
        limits = [options.limit(len(source)) for source in sources]
        if task.requests:
            limits = [max(limit, len(one.prefix)) for limit, one in zip(limits, task.requests, strict=True)]
        lengths = np.array([len(source) for source in sources], dtype=np.int64)
        tokens = SHORTLISTED_TOKENS if self.shortlisted else BATCH_TOKENS
        batches = in_batches(lengths, max(1, tokens // options.width))
        found = self._found(sources, batches, limits, task, watch)
        if any(phrase[0] == BOS for phrase in options.forbidden):
            found |= self._begun_otherwise(sources, found, limits, task)
        every = [[one.hypothesis(options) for one in found[index]] for index in range(len(sources))]
        # What a shortlist leaves out is missing from each hypothesis's score, and not the same of all.
        inexact = steered(options, task.requests) or (self.shortlisted and options.n_best > 1)
        return self._scored(sources, every, options) if task.token_scores or inexact else every

    def token_log_probs(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[list[float]]:
        """See `Engine`."""
        lengths = np.array([len(source) + len(target) for source, target in pairs], dtype=np.int64)
        batches = [part.tolist() for part in reversed(ordered_batches(lengths, BATCH_TOKENS))]

        def start(part: list[int]) -> list[Any]:
            # It adds the end symbol of the target itself.
            targets = [[self.target_names[id] for id in pairs[index][1][:-1]] for index in part]
            sources = [self._names(pairs[index][0]) for index in part]
            return list(self.translator.score_batch(sources, targets, max_input_length=0, asynchronous=True))

        done: dict[int, list[float]] = {}
        for part, results in ahead(batches, start):
            done.update(zip(part, (list(result.result().log_probs) for result in results), strict=True))
        return [done[index] for index in range(len(pairs))]

    def weights(self, pairs: Sequence[tuple[Ids, Ids]]) -> list[NDArray[np.float32]]:
        """Where it looks to write given targets, `(T, S)` each, the row of the end included.

        Sources are ids with their end symbols, targets without. Those are prefixes that a greedy search keeps to.
        """
        lengths = np.array([len(source) + len(target) for source, target in pairs], dtype=np.int64)

        def start(part: list[int]) -> list[Any]:
            return list(
                self.translator.translate_batch(
                    [self._names(pairs[index][0]) for index in part],
                    [[self.target_names[id] for id in pairs[index][1]] for index in part],
                    asynchronous=True,
                    beam_size=1,
                    max_input_length=0,
                    max_decoding_length=max(len(pairs[index][1]) for index in part) + 1,
                    return_scores=False,
                    return_attention=True,
                    return_end_token=True,
                )
            )

        done: dict[int, NDArray[np.float32]] = {}
        for part, results in ahead([each.tolist() for each in reversed(ordered_batches(lengths, BATCH_TOKENS))], start):
            for index, result in zip(part, results, strict=True):
                rows = np.array(result.result().attention[0], dtype=np.float32)
                done[index] = rows[: len(pairs[index][1]) + 1]
        return [done[index] for index in range(len(pairs))]

    def aligns(self, alignment: AlignmentConfig) -> bool:
        """Whether its attention is what tells this alignment."""
        return self.about.aligns(alignment, number(self.files.config.model.decoder.layers))

    def _aligns(self, task: Task) -> bool:
        """Whether the attention that comes with a search is what the task asks for."""
        return task.align and self.aligns(task.alignment)

    def _names(self, source: Ids) -> list[str]:
        return [self.source_names[id] for id in source]

    def _start(
        self,
        sources: Sequence[Ids],
        part: list[int],
        most: int,
        task: Task,
        every: bool = False,
        greedy: bool = False,
    ) -> list[Any]:
        """Begins to translate a batch with at most so many tokens, end symbol included; results to wait for.

        With `every`, all that a search was looking at when its limit cut it comes back, not only the n best.
        """
        options = replace(task.options, strategy="greedy", n_best=1) if greedy else task.options
        beam = options.width
        enough = needed(options, most) + (beam if every and beam > 1 else 0)
        alpha = options.alpha if options.length_penalty == "average" else 0.0
        prefixes = [list(task.requests[index].prefix) for index in part] if task.requests else []
        never = [(PAD,), (BOS,), *(phrase for phrase in options.forbidden if phrase[0] != BOS)]
        return list(
            self.translator.translate_batch(
                [self._names(sources[index]) for index in part],
                [[self.target_names[id] for id in prefix] for prefix in prefixes] if any(prefixes) else None,
                asynchronous=True,
                beam_size=beam,
                patience=enough / beam if beam > 1 else 1,
                num_hypotheses=enough if every and beam > 1 else options.n_best,
                length_penalty=alpha or NO_PENALTY,
                max_input_length=0,
                max_decoding_length=most,
                min_decoding_length=min(options.min_length, most),
                suppress_sequences=[[self.target_names[id] for id in phrase] for phrase in never],
                no_repeat_ngram_size=options.no_repeat,
                return_end_token=True,
                # Of a greedy search they are its dearest part after the products: a softmax over the vocabulary.
                return_scores=task.token_scores or beam > 1,
                return_attention=self._aligns(task),
                use_vmap=self.shortlisted,
            )
        )

    def _read(self, result: Any, first: list[float] | None) -> list[Found]:
        """A result's hypotheses; `first` is the right first row of their attention, where it is not as it came."""
        # CTranslate2 makes Python's lists of its own anew whenever one looks.
        hypotheses, scores, attention, ids_of = result.hypotheses, result.scores, result.attention, self.target_ids
        found = []
        for place, tokens in enumerate(hypotheses):
            rows = attention[place] if attention else None
            if rows is not None and first is not None:
                rows = [first, *rows[1:]]
            ids = [ids_of[name] for name in tokens]
            hypothesis = Found(ids, scores[place] if scores else math.nan, rows)
            # Padding stands where nothing was allowed any more.
            found.append(hypothesis.cut(ids.index(PAD)) if PAD in ids else hypothesis)
        return found

    def _found(
        self,
        sources: Sequence[Ids],
        batches: list[list[int]],
        limits: list[int],
        task: Task,
        watch: Watch = lambda count: None,
    ) -> dict[int, list[Found]]:
        """The n best of every sentence, within its own limit."""
        found = self._searched(sources, batches, limits, task, watch=watch)
        return found | self._at_limit(sources, found, limits, task)

    def _searched(
        self,
        sources: Sequence[Ids],
        batches: list[list[int]],
        limits: list[int],
        task: Task,
        every: bool = False,
        watch: Watch = lambda count: None,
    ) -> dict[int, list[Found]]:
        """What batches of sentences, searched side by side, come to; a batch has the limit of its longest sentence."""
        # Row 0 is the same for all hypotheses of a sentence, and of a beam's first step in a batch CTranslate2 gives
        # that of another sentence.
        mend = self._aligns(task) and task.options.width > 1

        def start(part: list[int]) -> tuple[list[Any], list[Any]]:
            most = max(limits[index] for index in part) + 1
            first = self._start(sources, part, 1, task, greedy=True) if mend else []
            return self._start(sources, part, most, task, every), first

        found: dict[int, list[Found]] = {}
        for part, (results, first) in ahead(batches, start):
            rows = [one.result().attention[0][0] for one in first] if mend else [None] * len(part)
            for index, result, row in zip(part, results, rows, strict=True):
                found[index] = self._read(result.result(), row)
            watch(len(part))
        return found

    def _at_limit(
        self, sources: Sequence[Ids], found: dict[int, list[Found]], limits: list[int], task: Task
    ) -> dict[int, list[Found]]:
        """The n best of those sentences whose search came to a limit: what has ended first, then what it cut."""
        cut_off = [
            index
            for index, each in found.items()
            if not all(one.finished and len(one.ids) <= limits[index] + 1 for one in each)
        ]
        if task.options.width == 1:  # each token follows from those before it, whatever the limit
            return {index: [one.cut(limits[index]) for one in found[index]] for index in cut_off}
        count = task.options.n_best
        again = self._searched(sources, [[index] for index in cut_off], limits, task, every=True)
        done = {index: [one for one in each if one.finished] for index, each in again.items()}
        short = [index for index, each in done.items() if len(each) < count]
        # The same search a step earlier has what was alive before the last step.
        earlier = [limit - 1 for limit in limits]
        cut = self._searched(sources, [[index] for index in short if limits[index]], earlier, task, every=True)
        nothing = [Found([], 0.0, [] if self._aligns(task) else None)]
        for index in short:
            known = [one.ids[:-1] for one in done[index]]
            done[index] += [one for one in cut.get(index, nothing) if not one.finished and one.ids not in known]
        return {index: each[:count] for index, each in done.items()}

    def _begun_otherwise(
        self, sources: Sequence[Ids], found: dict[int, list[Found]], limits: list[int], task: Task
    ) -> dict[int, list[Found]]:
        """What becomes of sentences that have begun with a sequence that is forbidden there: one hypothesis each.

        All but the last token of the sequence stand. One step without what is forbidden now gives the token after
        them, and from there the search goes on.
        """
        phrases = sorted((phrase[1:] for phrase in task.options.forbidden if phrase[0] == BOS), key=len)
        changed: dict[int, list[Found]] = {}
        for index, (best,) in found.items():
            source, limit = [sources[index]], [limits[index]]
            typed = len(task.requests[index].prefix) if task.requests else 0
            while wrong := next((one for one in phrases if len(one) > typed and best.begins(one)), None):
                now = tuple(one for one in phrases if one[:-1] == wrong[:-1])
                options = replace(task.options, forbidden=(*task.options.forbidden, *now))
                kept = replace(task, options=options, requests=(Request(wrong[:-1]),))
                (best,) = self._searched(source, [[0]], [len(wrong) - 1], kept)[0]
                if best.finished or not len(wrong) == len(best.ids) <= limit[0]:
                    best = best.cut(limit[0])
                else:
                    going_on = replace(task, requests=(Request(tuple(best.ids)),))
                    (best,) = self._found(source, [[0]], limit, going_on)[0]
                changed[index] = [best]
        return changed

    def _scored(
        self, sources: Sequence[Ids], found: list[list[Hypothesis]], options: SearchOptions
    ) -> list[list[Hypothesis]]:
        """The same with log-probabilities of tokens, and scores from them."""
        pairs = [(source, [*one.tokens, EOS]) for source, each in zip(sources, found, strict=True) for one in each]
        rest = iter(self.token_log_probs(pairs))
        result = []
        for each in found:
            scored = []
            for one in each:
                values = next(rest)
                # What was cut never came to predict its end.
                values = values if one.finished else values[:-1]
                total = math.fsum(values)
                score = total / penalty(len(values), options)
                scored.append(replace(one, score=score, log_prob=total, token_log_probs=values))
            result.append(sorted(scored, key=lambda one: (not one.finished, -one.score)))
        return result


def _read_unless_utf8(folder: Path) -> dict[str, bytes] | None:
    """The files of a folder whose name CTranslate2 cannot take; None when it can."""
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    return None


def _place(device: str) -> tuple[str, int]:
    """CTranslate2's name and number of a device that torch would call `device`."""
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda") or not (index or "0").isdigit():
        raise SightlineError(f"unknown device '{device}': try cpu or cuda")
    return kind, int(index or 0)


def _check_compute(compute: str, device: str) -> None:
    import ctranslate2

    if device == "cuda" and not ctranslate2.get_cuda_device_count():
        raise SightlineError("device 'cuda': CTranslate2 finds no GPU here; try cpu")
    known = ["default", "auto", *sorted(ctranslate2.get_supported_compute_types(device))]
    if compute not in known:
        raise SightlineError(f"compute type '{compute}' cannot be used on this {device}; {nearest(compute, known)}")
