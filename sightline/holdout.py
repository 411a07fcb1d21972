"""Splitting off a validation part so that no sentence is in both parts, for millions of pairs.

Sentences are told apart by 64-bit keys. Two different ones share a key once in a million corpora of five million
pairs, and then the only harm is that two pairs stay together that need not.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from sightline.errors import SightlineError
from sightline.readers import Pair

Keys = NDArray[np.uint64]


def key(sentence: str) -> int:
    """64 bits that stand for a sentence, the same in every process."""
    return int.from_bytes(blake2b(sentence.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def components(*sides: Keys) -> NDArray[np.int64]:
    """`(N,)`: the smallest number among the pairs that each hangs together with.

    Pairs hang together when they share a key of a side, directly or through others.
    """
    labels = np.arange(len(sides[0]), dtype=np.int64)
    memberships = [np.unique(side, return_inverse=True)[1].reshape(-1) for side in sides]
    while True:
        before = labels
        labels = labels.copy()
        for members in memberships:
            smallest = np.full(int(members.max(initial=-1)) + 1, len(labels), dtype=np.int64)
            np.minimum.at(smallest, members, labels)
            labels = smallest[members]
        # A pair that found a smaller label tells the one it hung on, and with it all the others that do: without
        # this a long chain would be walked link by link.
        np.minimum.at(labels, before, labels.copy())
        labels = labels[labels]
        if np.array_equal(labels, before):
            return labels


def groups(pairs: Sequence[Pair]) -> list[list[int]]:
    """The pairs' numbers in groups that hang together: pairs that share a source or a target are in one group."""
    labels = components(*(np.array([key(pair[side]) for pair in pairs], dtype=np.uint64) for side in (0, 1)))
    members: dict[int, list[int]] = {}
    for number, label in enumerate(labels.tolist()):
        members.setdefault(label, []).append(number)
    return list(members.values())


def hold_out(sides: Sequence[Keys], count: int, seed: int) -> NDArray[np.bool_]:
    """`(N,)`: which of the pairs to validate with, at most `count` of them.

    No sentence of one part, on either side, is in the other: pairs that share a sentence stay together. So groups
    larger than the room left stay in the training part, and a corpus of few distinct sentences may give fewer pairs.
    """
    total = len(sides[0])
    if count >= total:
        raise SightlineError(f"cannot hold out {count:,} of {total:,} pairs; hold out fewer or add training text")
    labels = components(*sides)
    group_labels, sizes = np.unique(labels, return_counts=True)
    order = array("q", range(len(sizes)))
    random.Random(seed).shuffle(order)
    room, chosen = count, []
    for group in order:
        if sizes[group] <= room:
            chosen.append(group)
            room -= int(sizes[group])
            if not room:
                break
    if not chosen:
        raise SightlineError(
            "no pairs can be held out for validation: repeated sentences tie them all together; give validation files"
        )
    return np.isin(labels, group_labels[chosen])


def repeated(*sides: Keys) -> NDArray[np.bool_]:
    """`(N,)`: which pairs came before, all sides the same."""
    order = np.lexsort(sides)  # stable: of equal pairs the first comes first
    same = np.logical_and.reduce([np.diff(side[order]) == 0 for side in sides])
    found = np.zeros(len(order), dtype=np.bool_)
    found[order[1:][same]] = True
    return found
