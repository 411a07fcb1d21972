"""Several corpora: which files, and their shares of an epoch, worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sightline.config import build_config
from sightline.corpora import Mix, corpora_of, mix, named_files
from sightline.errors import SightlineError
from sightline.run_settings import training_files


class TestShares:
    def test_every_pair_once(self) -> None:
        assert mix([900, 100], [1, 1], None) is None
        assert mix([900, 100], [1, 1], 1.0) is None
        assert mix([7], [1], 5.0) is None

    @pytest.mark.parametrize(
        ("sizes", "weights", "temperature", "counts"),
        [
            ([900, 100], [1, 3], None, (900, 300)),
            ([900, 100], [0.5, 2.5], None, (450, 250)),
            ([900, 100], [1, 1], 2.0, (750, 250)),  # square roots: 30 to 10
            ([900, 100], [1, 3], 2.0, (600, 600)),  # 30 to 3 * 10 of the 900 + 300
            ([810_000, 10_000, 10_000], [1, 1, 1], 4.0, (498_000, 166_000, 166_000)),  # 30 to 10 to 10
            ([900, 100], [1, 1], 0.5, (988, 12)),  # 81 to 1
            ([1000, 1], [0.001, 1], None, (1, 1)),
            ([10], [2], None, (20,)),
        ],
    )
    def test_by_hand(
        self, sizes: list[int], weights: list[float], temperature: float | None, counts: tuple[int, ...]
    ) -> None:
        found = mix(sizes, weights, temperature)
        assert found is not None
        assert found.counts == counts
        assert found.bounds == tuple(np.cumsum([0, *sizes]).tolist())

    def test_a_corpus_of_which_nothing_is_left(self) -> None:
        assert mix([5, 0, 3], [1, 9, 2], 3.0) == Mix((0, 5, 8), mix([5, 3], [1, 2], 3.0).counts)  # type: ignore[union-attr]

    def test_copies_and_a_part(self) -> None:
        drawn = Mix((0, 10, 14), (5, 11)).draw(seed=1, epoch=0)
        counts = np.bincount(drawn, minlength=14)
        assert sorted(counts[:10].tolist()) == [0] * 5 + [1] * 5
        assert sorted(counts[10:].tolist()) == [2, 3, 3, 3]
        assert drawn.tolist() == Mix((0, 10, 14), (5, 11)).draw(1, 0).tolist()
        others = [Mix((0, 10, 14), (5, 11)).draw(seed, epoch).tolist() for seed, epoch in ((1, 1), (2, 0))]
        assert drawn.tolist() not in others

    def test_in_the_long_run_every_pair_comes_as_often(self) -> None:
        drawn = [Mix((0, 50), (20,)).draw(3, epoch) for epoch in range(500)]
        counts = np.bincount(np.concatenate(drawn), minlength=50)
        assert counts.sum() == 10_000
        assert (abs(counts - 200) < 60).all()  # five standard deviations


def data(values: dict[str, Any]) -> Any:
    return build_config({"data": values}).data


class TestFiles:
    def test_one_or_several(self) -> None:
        (one,) = corpora_of(data({"source": "a.en", "target": "a.de"}))
        assert (one.name, one.files.paths, one.weight) == ("a.en", (Path("a.en"), Path("a.de")), 1.0)
        listed = {"corpora": [{"pairs": "x/a.tsv", "weight": 2}, {"source": "b", "target": "c", "name": "own"}]}
        first, second = corpora_of(data(listed))
        assert (first.name, first.weight, second.name) == ("a.tsv", 2.0, "own")
        assert named_files(data(listed)) == [Path("x/a.tsv"), Path("b"), Path("c")]

    @pytest.mark.parametrize(
        ("values", "told"),
        [
            ({"pairs": "a.tsv", "corpora": [{"pairs": "b.tsv"}]}, "either data.corpora or one corpus"),
            ({"corpora": [{"source": "b"}]}, "b is one side only"),
            ({"corpora": [{}]}, "no text is given"),
            ({"corpora": [{"pairs": "a.tmx"}]}, "set data.source_language"),
        ],
    )
    def test_mistakes(self, values: dict[str, Any], told: str) -> None:
        with pytest.raises(SightlineError, match=told):
            corpora_of(data(values))

    @pytest.mark.parametrize(
        ("values", "told"),
        [
            ({"corpora": [{"pairs": "a.tsv"}, {"wieght": 2}]}, r"unknown key 'data.corpora.1.wieght'; did you mean"),
            ({"corpora": [{"pairs": "a.tsv", "weight": 0}]}, r"data.corpora.0.weight = 0: expected more than 0"),
            ({"temperature": 0}, r"data.temperature = 0: expected more than 0"),
            ({"filters": {"ratio": 0.5}}, r"data.filters.ratio = 0.5: expected 1"),
        ],
    )
    def test_wrong_keys(self, values: dict[str, Any], told: str) -> None:
        with pytest.raises(SightlineError, match=told):
            data(values)

    def test_from_the_command_line(self) -> None:
        a, b, c, d = map(Path, "abcd")
        nothing = {"source": None, "target": None, "pairs": None, "text": None}
        assert training_files([], [], []) == {}
        assert training_files([], [], [a]) == {**nothing, "pairs": "a", "corpora": []}
        assert training_files([], [], [], [a]) == {**nothing, "text": "a", "corpora": []}
        assert training_files([], [], [], [a, b]) == {**nothing, "corpora": [{"text": "a"}, {"text": "b"}]}
        assert training_files([], [], [a, b]) == {**nothing, "corpora": [{"pairs": "a"}, {"pairs": "b"}]}
        both = [{"source": "a", "target": "c"}, {"source": "b", "target": "d"}]
        assert training_files([a, b], [c, d], []) == {**nothing, "corpora": both}
        two = {**nothing, "source": ["a", "b"], "target": "c", "corpora": []}
        assert training_files([a, b], [c], []) == two  # several sources of one target
        with pytest.raises(SightlineError, match="3 --source and 2 --target"):
            training_files([a, b, c], [c, d], [])
        with pytest.raises(SightlineError, match="not both"):
            training_files([a], [b], [c, d])
        with pytest.raises(SightlineError, match="not both"):
            training_files([], [], [a], [b, c])
