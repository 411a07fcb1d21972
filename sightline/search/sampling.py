"""Sampling: every token drawn at random by the model's probabilities, which may be sharpened and cut first.

Shapes: B sentences, A of them still sampled, K slots a sentence (as many as the sentence with the most unfinished
samples needs), R = A * K rows, V outcomes, D coins a draw, the least with 2**D >= V.

The rules:
- Of a step's log-probabilities those of padding, the start symbol and, below the minimum length, the end are struck
  out. Then come temperature, `top_k`, `top_p` and `min_p`, in this order; each keeps the best token at least.
- The random numbers of a draw are a function of the sentence's seed, its source, the number of the sample and that of
  the step. Nothing else enters: neither the rest of the batch nor how many samples are drawn changes a sample, and
  every device gets the same numbers. Since the source enters, sentences with one seed are drawn independently.
- Every sample stops on its own, at its end symbol or its length limit. A finished one makes room as soon as no sentence
  needs its slot, and a sentence leaves the batch with its last sample.
- Whatever law a token was drawn by, the log-probability given with it is the model's own. The score is made as a
  beam's is, of what a repetition penalty has left of it; temperature and truncation have no part in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from sightline.batch import Batch, Tokens
from sightline.hypothesis import Hypothesis, Request, SearchOptions, check_seed
from sightline.search.candidates import top
from sightline.search.lengths import length_limits
from sightline.search.processors import Ranking
from sightline.search.protocol import Step, StepModel
from sightline.search.steering import Steering, checked_requests
from sightline.search.trace import Ending, Trace
from sightline.state import State

# Random numbers kept for one draw, of which it uses the first D. A fixed number, so that a wider output (copied words
# of another sentence in the batch) shifts nothing.
COINS = 32
# Shares and fractions are compared with this relative slack: rounding must not decide whether 0.5 + 0.3 reaches 0.8.
SLACK = 1e-6
# Below this a temperature is 0: nothing but the best has any weight left, and single precision cannot divide by it.
COLD = 1e-6


def sample_search(
    model: StepModel,
    batch: Batch,
    options: SearchOptions | None = None,
    requests: Sequence[Request] | None = None,
) -> list[list[Hypothesis]]:
    """`samples` hypotheses a sentence, in the order drawn (equal ones stay), sentences in the batch's order.

    A sentence's seed is its request's, or else `options.seed`.
    """
    sampler = Sampler(model, batch, options or SearchOptions(), requests)
    for _ in sampler.steps():
        pass
    return sampler.results()


def sampling_weights(log_probs: Tensor, options: SearchOptions) -> Tensor:
    """How likely each token is drawn, `(R, V)`, relative to the best one's 1; given log-probabilities `(R, V)`.

    Temperature, `top_k`, `top_p`, `min_p`, in this order. A row that allows nothing gives zeros.
    """
    best = log_probs.amax(1, keepdim=True).clamp(min=torch.finfo(log_probs.dtype).min)  # finite: no inf - inf
    cold = options.temperature < COLD
    scaled = (log_probs - best) / (1.0 if cold else options.temperature)
    count = 1 if cold else options.top_k
    if count:
        scaled = _only(scaled, *top(scaled, count))
    if options.top_p < 1:
        scaled = _nucleus(scaled, options.top_p)
    weights = scaled.exp()
    return weights.masked_fill(weights < options.min_p * (1 - SLACK), 0.0)


def _nucleus(scaled: Tensor, share: float) -> Tensor:
    """Keeps of each row of `(R, V)` log-weights the fewest that have this share of its weight, the largest first.

    The token with which the share is reached stays. Among equals the lowest ids stay. All else is minus infinity.
    """
    wanted = share * (1 - SLACK) * scaled.exp().sum(1, keepdim=True, dtype=torch.double)
    count = 64  # as a rule enough, and sorting a few is much quicker than sorting all
    while True:
        values, ids = top(scaled, count)
        mass = values.double().exp().cumsum(1)
        if count >= scaled.size(1) or (mass[:, -1:] >= wanted).all():
            break
        count *= 8
    before = functional.pad(mass[:, :-1], (1, 0))
    return _only(scaled, values.masked_fill(before >= wanted, -torch.inf), ids)


def _only(scaled: Tensor, values: Tensor, ids: Tensor) -> Tensor:
    """A tensor like `scaled` `(R, V)` with these values at these ids, `(R, C)` each, and minus infinity elsewhere."""
    return torch.full_like(scaled, -torch.inf).scatter(1, ids, values)


def draw(weights: Tensor, uniforms: Tensor) -> Tensor:
    """One index a row, `(R,)`, drawn in proportion to `weights` `(R, V)`, with random numbers in [0, 1) `(R, >= D)`.

    A tree of coins: the first tells the lowest bit of the index, by the weight of the even and of the odd ones, the
    next the bit above among those that are left, and so on. Weights that differ in their last digits, as those of one
    sentence in different batches do, bias each coin by as little, so the chance of another outcome is about D times
    that. Looking up one random number in cumulated weights would be simpler, but there every one of V borders moves.
    A weight of 0 is never drawn, unless a row has no other; more columns of weight 0 change nothing.
    """
    depth = (weights.size(1) - 1).bit_length()
    levels = [functional.pad(weights, (0, 2**depth - weights.size(1)))]
    while levels[-1].size(1) > 1:
        half = levels[-1].size(1) // 2
        levels.append(levels[-1][:, :half] + levels[-1][:, half:])  # indices that agree in all lower bits
    index = torch.zeros(len(weights), 1, dtype=torch.long, device=weights.device)
    for bit in range(depth):
        level = levels[depth - 1 - bit]
        zero, one = level.gather(1, index).double(), level.gather(1, index + 2**bit).double()
        index = index + (uniforms[:, bit : bit + 1] * (zero + one) >= zero) * 2**bit
    return index[:, 0].clamp(max=weights.size(1) - 1)


def sentence_keys(batch: Batch, seeds: Sequence[int]) -> list[int]:
    """A number of 64 bits for each sentence, made of its seed and its source without the padding."""
    digests = [hashlib.blake2b(int(seed).to_bytes(8, "little"), digest_size=8) for seed in seeds]
    for source in batch.sources:
        values = source.ids.long() if isinstance(source, Tokens) else source.values.double()
        for digest, row, real in zip(digests, values.cpu().numpy(), source.mask.cpu().numpy(), strict=True):
            digest.update(row[real].tobytes())
    return [int.from_bytes(digest.digest(), "little") for digest in digests]


def random_numbers(keys: Sequence[int], samples: int, step: int) -> NDArray[np.float64]:
    """`(A, samples, COINS)` numbers in [0, 1), for each of A sentences' keys, of one step.

    Philox is a function of its own key, here (key, step), and of the place in its stream, so there is no state to
    carry; and numpy keeps the raw stream of a generator the same from version to version.
    """
    size = samples * COINS
    raw = [np.random.Philox(key=np.array([key, step], dtype=np.uint64)).random_raw(size) for key in keys]
    return (np.stack(raw).reshape(-1, samples, COINS) >> np.uint64(11)).astype(np.float64) * 2.0**-53


class Sampler:
    """The samples of one batch. What is indexed by A and K shrinks as samples end.

    A slot that is not `alive` is a twin of the sentence's first that is, so that a model never reads what it forbade.
    """

    def __init__(
        self, model: StepModel, batch: Batch, options: SearchOptions, requests: Sequence[Request] | None = None
    ) -> None:
        requests = checked_requests(model, batch, requests)
        self.model, self.batch = model, batch
        self.options = options
        self.ranking = Ranking(options)
        self.trace = Trace()
        self.endings: dict[tuple[int, int], Ending] = {}  # by sentence and sample
        seeds = [options.seed if request.seed is None else request.seed for request in requests]
        for seed in seeds:
            check_seed(seed)
        self.keys = sentence_keys(batch, seeds)
        mask = self.mask = batch.source_mask  # (B, S)
        self.limits = length_limits(model, batch, options, requests).to(mask.device)  # (B,)
        self.steering = Steering(model, batch, options, requests, width=options.samples)
        self.sentences = torch.arange(batch.size, device=mask.device)  # (A,)
        self.samples = torch.arange(options.samples, device=mask.device).repeat(
            batch.size, 1
        )  # (A, K), which in a slot
        self.alive = torch.ones_like(self.samples, dtype=torch.bool)  # (A, K)
        self.totals = torch.zeros_like(self.samples, dtype=torch.double)  # (A, K), sums of scores, as a beam has them

    @torch.no_grad()
    def steps(self) -> Iterator[Tensor]:
        """Draws until all samples have ended; gives, after each step, the new tokens `(R,)` of those that have not."""
        tokens = torch.full_like(self.samples, self.model.bos).flatten()
        state = self.model.start(self.batch).expand(self.samples.size(1))
        while len(self.sentences):
            tokens, state = self._advance(self.model.step(tokens, state))
            yield tokens

    def _advance(self, step: Step) -> tuple[Tensor, State]:
        """Takes one step of the model; gives the next tokens `(R,)` and the state of what goes on."""
        self.ranking.check(step.weights, self.mask)
        number = len(self.trace)  # of this step, from 0, and so of the tokens before it
        scores = self.steering(step.log_probs)
        allowed = self._allowed(scores, number >= self.options.min_length)
        tokens = self._draw(allowed, number)
        possible = allowed.gather(1, tokens) > -torch.inf
        parts = (tokens, possible, step.log_probs.gather(1, tokens).double(), scores.gather(1, tokens).double())
        tokens, possible, log_probs, earned = (part.view(self.samples.shape) for part in parts)
        reached = self.totals + earned
        ended = possible & (tokens == self.model.eos)
        stopped = self.alive & (ended | ~possible | (self.limits[self.sentences] <= number)[:, None])
        if not stopped.any():
            self.totals = reached
            slots = torch.arange(tokens.size(1), device=tokens.device).expand_as(tokens)
            self.trace.add(self.sentences, slots, tokens, log_probs, step.weights)
            self.steering.follow(torch.arange(tokens.numel(), device=tokens.device), tokens.flatten())
            return tokens.flatten(), step.state
        self._note(stopped, ended, log_probs, torch.where(ended, reached, self.totals), number)
        self.totals = reached
        return self._pack(step, stopped, tokens, log_probs)

    def results(self) -> list[list[Hypothesis]]:
        """The samples of each sentence."""
        found = self.trace.hypotheses([self.endings[key] for key in sorted(self.endings)], self.mask)
        found = [replace(one, score=self.ranking.score_of(one, total=one.score)) for one in found]
        each = self.options.samples
        return [found[first : first + each] for first in range(0, len(found), each)]

    def _allowed(self, log_probs: Tensor, may_end: bool) -> Tensor:
        """The log-probabilities to draw by, `(R, V)`, minus infinity for what must not come."""
        forbidden = [self.model.pad, self.model.bos] if may_end else [self.model.pad, self.model.bos, self.model.eos]
        log_probs = log_probs.to(torch.promote_types(log_probs.dtype, torch.float32))  # half precision is too coarse
        return log_probs.index_fill(1, torch.tensor(forbidden, device=log_probs.device), -torch.inf)

    def _draw(self, allowed: Tensor, number: int) -> Tensor:
        """A token for each row, `(R, 1)`."""
        keys = [self.keys[sentence] for sentence in self.sentences.tolist()]
        numbers = torch.from_numpy(random_numbers(keys, self.options.samples, number)).to(allowed.device)
        places = torch.arange(len(keys), device=allowed.device)[:, None]
        uniforms = numbers[places, self.samples].flatten(0, 1)  # (R, COINS)
        return draw(sampling_weights(allowed, self.options), uniforms)[:, None]

    def _note(self, stopped: Tensor, ended: Tensor, log_probs: Tensor, totals: Tensor, number: int) -> None:
        """Remembers where the `stopped` samples end, `(A, K)`, the log-probability of an end symbol, and the scores."""
        places, slots = stopped.nonzero(as_tuple=True)
        parts = (self.sentences[places], self.samples[places, slots], slots, ended[places, slots])
        ends, scores = (values[places, slots].tolist() for values in (log_probs, totals))
        for sentence, sample, slot, finished, end, score in zip(
            *(part.tolist() for part in parts), ends, scores, strict=True
        ):
            self.endings[sentence, sample] = Ending(sentence, number, slot, end if finished else None, score)

    def _pack(self, step: Step, stopped: Tensor, tokens: Tensor, log_probs: Tensor) -> tuple[Tensor, State]:
        """Moves living samples to their sentences' first slots and goes on with as many slots as are needed."""
        alive = self.alive & ~stopped
        before, after = alive.size(1), max(1, int(alive.sum(1).max()))
        order = (~alive).to(torch.uint8).sort(dim=1, stable=True).indices[:, :after]
        alive = alive.gather(1, order)
        order = torch.where(alive, order, order[:, :1])  # (A, K)
        tokens = tokens.gather(1, order)
        self.trace.add(self.sentences, order, tokens, log_probs.gather(1, order), step.weights)
        going = alive.any(1).nonzero()[:, 0]
        state = step.state if len(going) == len(alive) else step.state.keep(going)
        offsets = torch.arange(len(going), device=going.device)[:, None] * before
        state = replace(state.reorder((offsets + order[going]).flatten()), width=after)
        self.steering.follow((going[:, None] * before + order[going]).flatten(), tokens[going].flatten())
        self.sentences, self.alive = self.sentences[going], alive[going]
        self.samples, self.totals = self.samples.gather(1, order)[going], self.totals.gather(1, order)[going]
        return tokens[going].flatten(), state
