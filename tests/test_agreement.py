"""Two directions that are trained to see the same: the trace by hand and by brute force, the module, the run."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sightline.agreement import Agreement
from sightline.average import average_run
from sightline.batch import Batch, pad
from sightline.config import build_config
from sightline.errors import SightlineError
from sightline.folder import load_folder, read_config
from sightline.losses import agreement
from sightline.metrics import alignment_error_rate
from sightline.models import build_model
from sightline.text import EOS, Sizes
from sightline.training.directions import joint_scores, turned
from tests.commands import Command, letters, settings, write_lines
from tests.conftest import random_batch, small_model
from tests.oracles import check_gradients
from tests.test_guided import checkpoint


def with_ends(words: Tensor) -> Tensor:
    """Weights over words `(T, S)` with a row and a column for the end symbols, which see each other."""
    whole = torch.nn.functional.pad(words, (0, 1, 0, 1))
    whole[-1, -1] = 1
    return whole[None]


def every(size: int) -> Tensor:
    return torch.ones(1, size + 1, dtype=torch.bool)


class TestTrace:
    def test_a_permutation_gives_its_size(self) -> None:
        order = torch.eye(5, dtype=torch.float64)[[3, 0, 4, 1, 2]]
        total, most = agreement(with_ends(order), with_ends(order.T), every(5), every(5))
        assert (total.item(), most.item()) == (5, 5)
        assert agreement(with_ends(order), with_ends(order), every(5), every(5))[0] < 5

    def test_looking_everywhere_gives_one(self) -> None:
        there = torch.full((4, 7), 1 / 7, dtype=torch.float64)
        back = torch.full((7, 4), 1 / 4, dtype=torch.float64)
        total, most = agreement(with_ends(there), with_ends(back), every(7), every(4))
        assert total.item() == pytest.approx(1)
        assert most.item() == 4

    def test_by_brute_force(self) -> None:
        """Sentences of different lengths, whose padding and ends hold numbers that must not count."""
        sources, targets = [4, 2], [3, 5]
        there, back = (torch.rand(2, *shape, dtype=torch.float64) for shape in ((6, 5), (5, 6)))
        source, target = (
            torch.arange(size)[None] <= torch.tensor(lengths)[:, None] for size, lengths in ((5, sources), (6, targets))
        )
        expected = sum(
            there[b, j, i].item() * back[b, i, j].item()
            for b in range(2)
            for j in range(targets[b])
            for i in range(sources[b])
        )
        total, most = agreement(there, back, source, target)
        assert total.item() == pytest.approx(expected)
        assert most.item() == 3 + 2
        matrices = [there[b, : targets[b], : sources[b]] @ back[b, : sources[b], : targets[b]] for b in range(2)]
        assert total.item() == pytest.approx(sum(one.trace().item() for one in matrices))

    def test_gradients(self) -> None:
        check_gradients(
            lambda there, back: agreement(there.softmax(-1), back.softmax(-1), every(2), every(3))[0],
            torch.randn(1, 4, 3),
            torch.randn(1, 3, 4),
        )


class TestModule:
    @pytest.mark.parametrize("recipe", ["bahdanau", "luong", "transformer"])
    def test_losses_are_those_of_both(self, recipe: str) -> None:
        there, back = small_model(recipe), small_model(recipe)
        if recipe == "transformer":
            there.decoder.taught = back.decoder.taught = (1, 2)
        batch = random_batch([5, 3], [4, 6])
        both = Agreement(there, back, 0.7)
        losses = both.loss(batch)
        assert batch.targets is not None
        (source,) = batch.sources
        alone = there.loss(batch), back.loss(Batch((batch.targets,), source))  # type: ignore[arg-type]
        for name in ("cross_entropy", "nll"):
            for place in (0, 1):
                torch.testing.assert_close(losses[name][place], alone[0][name][place] + alone[1][name][place])
        assert both.loss_weights == {"cross_entropy": 1.0, "agreement": 0.7}
        total, most = losses["agreement"]
        assert total < 0  # a bonus
        assert most == 3 + 2
        total.backward()  # type: ignore[no-untyped-call, union-attr]
        for model in (there, back):
            assert model.source_embedding.weight.grad is not None
            assert model.source_embedding.weight.grad.abs().sum() > 0

    def test_agreeing_is_learnt(self) -> None:
        """A few steps on the bonus alone bring the two towards each other."""
        both = Agreement(small_model("luong"), small_model("luong"), 1.0)
        batch = random_batch([5, 4], [5, 4])
        optimizer = torch.optim.Adam(both.parameters(), 0.02)
        values = []
        for _ in range(15):
            total, most = both.loss(batch)["agreement"]
            optimizer.zero_grad()
            total.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            values.append(total.item() / float(most))
        assert values[-1] < 1.3 * values[0] < 0


# An encoder that reads one way has each word in all states from its own on: to look too late costs nothing.
ONE_WAY: dict[str, Any] = {
    "embedding": 16,
    "dropout": 0.0,
    "encoder": {"kind": "gru", "layers": 1, "width": 32, "bidirectional": False},
    "decoder": {"cell": "gru", "layers": 1, "width": 32, "input_feeding": False},
    "attention": {"score": "additive"},
    "tie": "none",
}


def bitext(count: int, generator: random.Random) -> Batch:
    """Eight words and their translations, the last word first."""
    texts = [[generator.randrange(4, 12) for _ in range(generator.randint(3, 6))] for _ in range(count)]
    translations = [[word + 8 for word in reversed(words)] for words in texts]
    return Batch((pad([[*words, EOS] for words in texts], 0),), pad([[*words, EOS] for words in translations], 0))


def error(weights: Tensor | None, batch: Batch) -> float:
    """The alignment error rate of the strongest weights."""
    assert weights is not None
    lengths = [length - 1 for length in batch.source_mask.sum(1).tolist()]
    return alignment_error_rate(
        [
            {(s, t) for t, s in enumerate(row[:n, :n].argmax(-1).tolist())}
            for row, n in zip(weights, lengths, strict=True)
        ],
        [{(n - 1 - t, t) for t in range(n)} for n in lengths],
    )


def errors(weight: float) -> tuple[float, float]:
    """Of both directions, after as many updates from the same weights."""
    torch.manual_seed(1)
    generator, config = random.Random(1), build_config({"model": ONE_WAY}, "luong").model
    both = Agreement(*(build_model(config, Sizes(20, 20, True)) for _ in range(2)), weight).train()
    optimizer = torch.optim.Adam(both.parameters(), 0.01)
    for _ in range(150):
        losses = both.loss(bitext(24, generator))
        total = sum(share * losses[name][0] / losses[name][1] for name, share in both.loss_weights.items())
        assert isinstance(total, Tensor)
        optimizer.zero_grad()
        total.backward()
        torch.nn.utils.clip_grad_norm_(both.parameters(), 1.0)
        optimizer.step()
    batch = bitext(100, generator)
    with torch.no_grad():
        assert losses["nll"][0] / losses["nll"][1] < 0.3  # both know the words
        there, back = both.there.loss_and_weights(batch), both.back.loss_and_weights(batch.turned())
    return error(there[1], batch), error(back[1], batch)


def test_directions_that_agree_align_better() -> None:
    alone, together = errors(0.0), errors(1.0)
    assert max(together) < 0.1
    assert sum(together) < 0.3 * sum(alone)


def test_scores_of_both() -> None:
    assert joint_scores({"": {"loss": 2.0}}) == {"loss": 2.0}
    scores = joint_scores(
        {
            "forward": {"loss": 0.0, "perplexity": 1.0, "bleu": 10.0, "sharpness": 0.5},
            "backward": {"loss": 0.0, "perplexity": 1.0, "bleu": 20.0},
        }
    )
    assert (scores["loss"], scores["perplexity"], scores["bleu"]) == (0.0, 1.0, 15.0)
    assert (scores["forward_bleu"], scores["backward_bleu"]) == (10.0, 20.0)
    assert "sharpness" not in scores


def test_the_other_directions_configuration() -> None:
    values: dict[str, Any] = {
        "data": {"source": "a", "target": "b", "source_language": "en", "filters": {"target_script": "Greek"}}
    }
    data = turned(build_config(values)).data
    assert (data.source, data.target, data.target_language) == (Path("b"), Path("a"), "en")
    assert (data.filters.source_script, data.filters.target_script) == ("Greek", None)


def test_a_run_makes_two_models(command: Command, toy_pairs: Path, tmp_path: Path) -> None:
    """Both translate, each in its direction; a run in two parts ends where one in a single part does."""
    given = [
        *("train", "--recipe", "bahdanau", "--pairs", toy_pairs, *settings("bahdanau")),
        *("--set", "training.agreement=0.5", "--set", "training.schedule=constant", "--set", "text.joint=false"),
    ]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    done = command(*given, "--output", whole, "--max-steps", 4)
    assert done.code == 0, done.err
    assert f"the models are in {whole / 'forward'} and {whole / 'backward'}" in done.err
    assert command(*given, "--output", parts, "--max-steps", 2).code == 0
    assert command("train", "--output", parts, "--resume", "--max-steps", 4).code == 0
    assert checkpoint(whole) == checkpoint(parts)
    for name in ("forward", "backward"):
        assert "validation perplexity" in (whole / name / "README.md").read_text()
    vocabularies = [load_folder(whole / name).tokenizers for name in ("forward", "backward")]
    assert vocabularies[0].source.content() == vocabularies[1].target.content()
    assert vocabularies[0].source.content() != vocabularies[0].target.content()
    for name, side in (("forward", 0), ("backward", 1)):
        text = "".join(f"{pair[side]}\n" for pair in letters(3)).encode()
        done = command("translate", whole / name, stdin=text)
        assert (done.code, len(done.out.splitlines())) == (0, 3)
    sides = [write_lines(tmp_path / f"{side}.txt", [pair[side] for pair in letters(3)]) for side in (1, 0)]
    assert command("align", whole / "backward", "--source", sides[0], "--target", sides[1]).code == 0
    done = command("translate", whole, stdin=b"a\n")
    assert f"name one of them, {whole / 'backward'} or {whole / 'forward'}" in done.mistake()
    assert read_config(whole).training.agreement == 0.5
    with pytest.raises(SightlineError, match="cannot be averaged afterwards"):
        average_run(whole, tmp_path / "mean")
