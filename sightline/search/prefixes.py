"""Forced prefixes: translations that begin as somebody has already written them.

Shapes: B sentences, R rows, V outcomes, P the longest prefix.

Prefixes of one batch may differ in length, so they are forced token by token: a row inside its prefix has one possible
token, with the model's own log-probability. A beam then holds one live hypothesis until the prefix is written.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sightline.errors import SightlineError
from sightline.hypothesis import Request
from sightline.search.controls import Written


class Prefixes:
    """The prefixes of a batch. They go before every other control: what somebody wrote stays."""

    def __init__(self, requests: Sequence[Request], device: torch.device) -> None:
        lengths = [len(request.prefix) for request in requests]
        self.longest = max(lengths, default=0)
        self.lengths = torch.tensor(lengths, dtype=torch.long, device=device)  # (B,)
        rows = [[*request.prefix, *[0] * (self.longest - len(request.prefix))] for request in requests]
        self.ids = torch.tensor(rows, dtype=torch.long, device=device)  # (B, P)

    def __call__(self, log_probs: Tensor, scores: Tensor, written: Written) -> Tensor:
        """`scores` `(R, V)`, but only the prefix's token, with its log-probability, for rows inside their prefix."""
        place = written.length
        if place >= self.longest:
            return scores
        wanted = self.ids[written.sentences, place][:, None]  # (R, 1)
        forced = place < self.lengths[written.sentences]  # (R,)
        own = log_probs.gather(1, wanted)
        impossible = forced & (own[:, 0] == -torch.inf)
        if impossible.any():
            row = int(impossible.nonzero()[0, 0])
            ids = self.ids[written.sentences[row], : place + 1].tolist()
            raise SightlineError(
                f"a prefix cannot be gone on from: after ids {ids[:-1]} this model never writes {ids[-1]}"
            )
        only = torch.full_like(log_probs, -torch.inf).scatter(1, wanted, own)
        return torch.where(forced[:, None], only, scores)
