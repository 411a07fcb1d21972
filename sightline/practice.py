"""Practice in copying: some words that source and target share are hidden from both vocabularies, so as to be copied.

A vocabulary has the words that are frequent, and so what training text leaves to be copied is little: where words
that were never seen must come out as themselves, those that were have to stand in for them.
Shapes: B sentences, S source positions, T target positions, V source vocabulary.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from sightline.batch import Batch, Tokens, side_by_side
from sightline.randomness import uniform
from sightline.text import UNK, Sizes


class Practice(nn.Module):
    """Hides each shared word of a sentence, wherever it stands in it, with the chance `rate`.

    A hidden word is what an open one is (see `sightline.open_words`): to the embeddings `<unk>`, with an id past the
    vocabularies. Marks, which have neither a letter nor a digit, stay as they are: they are not what is to be copied.
    """

    words: Tensor

    def __init__(self, sizes: Sizes, rate: float) -> None:
        super().__init__()
        self.source, self.target, self.rate = sizes.source, sizes.target, rate
        words = torch.zeros(sizes.source, dtype=torch.bool)
        words[[*sizes.words]] = True
        self.register_buffer("words", words, persistent=False)  # (V,)

    def hidden(self, batch: Batch, written: Tensor) -> Batch:
        """The batch with hidden words; `written` `(B, S)` are the target ids that copying its source ids writes."""
        assert batch.targets is not None
        texts = [source for source in batch.sources if isinstance(source, Tokens)]
        ids, targets = side_by_side([source.ids for source in texts]), batch.targets.ids
        same = written[:, :, None] == targets[:, None]  # (B, S, T)
        first = (ids[:, :, None] == ids[:, None]).int().argmax(2)  # (B, S): where the word stands first
        drawn = uniform(torch.empty(ids.shape, device=ids.device)).gather(1, first) < self.rate
        known = (ids < self.source) & (written != UNK)
        hide = drawn & known & self.words[torch.where(known, ids, UNK)] & same.any(2)
        # New numbers follow those of the words that are open already, one for each different word.
        begins = hide & (first == torch.arange(ids.size(1), device=ids.device))
        own = (ids // self.source).amax(1, keepdim=True)
        numbers = own + begins.cumsum(1).gather(1, first)  # from 1
        ids = torch.where(hide, UNK + self.source * numbers, ids)
        chosen = (same & hide[:, :, None]) * numbers[:, :, None]
        number = chosen.amax(1)  # (B, T): 0 where nothing is hidden
        targets = torch.where(number > 0, self.target + number - 1, targets)
        parts = iter(torch.split(ids, [text.ids.size(1) for text in texts], 1))
        sources = [replace(one, ids=next(parts)) if isinstance(one, Tokens) else one for one in batch.sources]
        return replace(batch, sources=tuple(sources), targets=replace(batch.targets, ids=targets))
