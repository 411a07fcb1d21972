"""Attention taught by word links: the losses by hand and by their identities, the links from file to batch, the run."""

from __future__ import annotations

import gzip
import math
import random
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sightline.aligners import aligned
from sightline.attention.capture import capture
from sightline.batch import Batch
from sightline.config import build_config, merge
from sightline.data import Pair, encode_pairs
from sightline.errors import SightlineError
from sightline.folder import read_config
from sightline.guidance import LinkFile, check_guidance, token_links
from sightline.losses import GuidedAttention
from sightline.preparing import Prepared, prepare
from sightline.sizes import Corpus, fill
from sightline.text import CharacterTokenizer, WordTokenizer
from sightline.training.checkpoint_names import CHECKPOINTS, latest
from sightline.training.run import train
from tests.commands import Command, letters, settings, tiny, write_lines, write_tsv
from tests.conftest import random_batch, small_model
from tests.oracles import check_gradients

KINDS = ("cross_entropy", "squared_error", "product")
# Two sentences: links 0-0, 1-1, 2-1 and an unlinked row; in the second, all of it linked twice or not at all.
LINKS = torch.tensor(
    [[[1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]], [[1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]], dtype=torch.bool
)


def reversed_letters(count: int, seed: int = 0) -> tuple[list[tuple[str, str]], list[str]]:
    """Letters and the same letters large and backwards, and their links."""
    generator = random.Random(seed)
    rows = [[generator.choice("abcdefgh") for _ in range(generator.randint(2, 5))] for _ in range(count)]
    pairs = [(" ".join(row), " ".join(reversed(row)).upper()) for row in rows]
    return pairs, [" ".join(f"{len(row) - 1 - place}-{place}" for place in range(len(row))) for row in rows]


def diagonal(count: int, seed: int = 0) -> tuple[list[tuple[str, str]], list[str]]:
    """Letters and the same letters large, and their links."""
    pairs = letters(count, seed)
    return pairs, [" ".join(f"{place}-{place}" for place in range(len(source.split()))) for source, _ in pairs]


class TestLosses:
    def weights(self) -> Tensor:
        return torch.randn(*LINKS.shape, dtype=torch.float64).softmax(-1)

    def test_cross_entropy_is_at_least_the_entropy_of_the_links(self) -> None:
        wanted = LINKS.double() / LINKS.sum(-1, keepdim=True).clamp(min=1)
        total, count = GuidedAttention("cross_entropy")(wanted, LINKS)
        assert count.item() == 3
        assert total.item() == pytest.approx(2 * math.log(2), abs=1e-6)
        assert GuidedAttention("cross_entropy")(self.weights(), LINKS)[0] > total

    def test_product_is_cross_entropy_where_each_target_has_one_link(self) -> None:
        single, weights = LINKS & (LINKS.cumsum(-1) == 1), self.weights()
        one, other = (GuidedAttention(kind)(weights, single)[0] for kind in ("product", "cross_entropy"))
        torch.testing.assert_close(one, other)

    @pytest.mark.parametrize("kind", KINDS)
    def test_against_a_loop(self, kind: str) -> None:
        weights, expected, rows = self.weights(), 0.0, 0
        for b in range(2):
            for t in range(3):
                places = [s for s in range(4) if LINKS[b, t, s]]
                if not places:
                    continue
                rows += 1
                row = weights[b, t].tolist()
                wanted = [1 / len(places) if s in places else 0.0 for s in range(4)]
                expected += {
                    "cross_entropy": -sum(w * math.log(a) for w, a in zip(wanted, row, strict=True)),
                    "squared_error": 0.5 * sum((w - a) ** 2 for w, a in zip(wanted, row, strict=True)),
                    "product": -math.log(sum(w * a for w, a in zip(wanted, row, strict=True))),
                }[kind]
        total, count = GuidedAttention(kind)(weights, LINKS)
        assert total.item() == pytest.approx(expected, rel=1e-6)
        assert count.item() == rows == 3

    @pytest.mark.parametrize("kind", KINDS)
    def test_gradients(self, kind: str) -> None:
        check_gradients(lambda scores: GuidedAttention(kind)(scores.softmax(-1), LINKS)[0], torch.randn(LINKS.shape))

    def test_rows_without_links_are_free(self) -> None:
        weights = self.weights().requires_grad_()
        (gradient,) = torch.autograd.grad(GuidedAttention("cross_entropy")(weights, LINKS)[0], weights)
        assert not gradient[~LINKS.any(-1)].any()
        total, count = GuidedAttention("cross_entropy")(weights, None)
        assert (total.item(), count.item()) == (0, 0)

    def test_the_row_that_reads_a_token_is_the_next(self) -> None:
        weights = self.weights()
        later = torch.zeros_like(LINKS)
        later[:, 1:] = LINKS[:, :-1]
        for kind in KINDS:
            one, other = GuidedAttention(kind, consumes=True)(weights, LINKS), GuidedAttention(kind)(weights, later)
            torch.testing.assert_close(one, other)


class TestLinks:
    def test_pieces_by_hand(self) -> None:
        # Words 0 and 1 of the source have one and two pieces, those of the target two and one.
        assert token_links([(0, 0), (1, 0), (1, 1)], [0, 1, 1], [0, 0, 1]) == [
            *[(0, 0), (0, 1)],
            *[(1, 0), (2, 0), (1, 1), (2, 1)],
            *[(1, 2), (2, 2)],
        ]

    def test_characters_from_text_to_batch(self) -> None:
        """The space before a word is its own, and the end symbols have no links."""
        tokenizer = CharacterTokenizer([" ", *"abcxy"], False, "nfc", False)
        pairs = [Pair("ab c", "x y"), Pair("", "x"), Pair("a", "y")]
        encoded, _ = encode_pairs(pairs, tokenizer, tokenizer, links=[[(0, 1), (1, 0)], [], []])
        batch = encoded.batch(np.array([1, 0]))
        assert batch.links is not None
        assert batch.links.shape == (2, 4, 5)  # x, space, y, end; a, b, space, c, end
        assert not batch.links[0].any()
        assert batch.links[1].int().tolist() == [[0, 0, 1, 1, 0], [1, 1, 0, 0, 0], [1, 1, 0, 0, 0], [0] * 5]
        turned = encoded.turned().batch(np.array([1, 0]))
        assert turned.links is not None
        assert torch.equal(turned.links, batch.links.transpose(1, 2))
        other = batch.turned()
        assert torch.equal(other.sources[0].mask, turned.sources[0].mask)
        assert other.links is not None
        assert torch.equal(other.links, turned.links)
        assert torch.equal(batch.rows([1]).links[0], batch.links[1])  # type: ignore[index]

    def test_words_are_those_of_the_text(self) -> None:
        """NFKC makes two words of one here; the links count as the file's writer did."""
        tokenizer = WordTokenizer(["a", "b", "\u0301"], "nfkc", False)
        ids, owners = tokenizer.encode_given("a´ b")
        assert len(ids) == 3
        assert owners == [0, 0, 1]

    @pytest.mark.parametrize(
        ("line", "told"),
        [
            ("0-0 2-1", "link 2-1 (from 0), but the sentences have 2 and 2 words"),
            ("0-2", "link 0-2 (from 0), but the sentences have 2 and 2 words"),
            ("0-0 1", "'1' is not a link"),
        ],
    )
    def test_a_wrong_line_is_named(self, tmp_path: Path, line: str, told: str) -> None:
        path = write_lines(tmp_path / "links", ["0-0", line])
        file = LinkFile(path)
        assert file.links(file.take(), Pair("a", "A")) == [(0, 0)]
        with pytest.raises(SightlineError, match="line 2: ") as caught:
            file.links(file.take(), Pair("a b", "A B"))
        assert told in str(caught.value)
        assert str(path) in str(caught.value)


@pytest.fixture
def linked(tmp_path: Path) -> dict[str, Any]:
    """A corpus of 60 pairs with its links, as a configuration."""
    pairs, links = reversed_letters(60)
    packed = tmp_path / "links.gz"
    packed.write_bytes(gzip.compress("".join(f"{line}\n" for line in links).encode()))
    return {"data": {"pairs": str(write_tsv(tmp_path / "p.tsv", pairs)), "alignments": str(packed)}}


def prepared(values: dict[str, Any], tmp_path: Path) -> Prepared:
    base = {"text": {"tokenizer": "word"}, "data": {"cache": str(tmp_path / "cache"), "held_out": 9}}
    return prepare(build_config(merge(base, values)), 250)


class TestData:
    def test_links_stay_with_their_pairs(self, linked: dict[str, Any], tmp_path: Path) -> None:
        """Split off, filtered, read again from the cache: each target token has the source token it came from."""
        for rules in ({}, {"duplicates": True}, {}):
            found = prepared(merge(linked, {"data": {"filters": rules}}), tmp_path)
            for part in (found.train, found.valid):
                batch = part.batch(np.arange(len(part)))
                assert batch.targets is not None
                assert batch.links is not None
                for row, length in enumerate((batch.targets.mask.sum(-1) - 1).tolist()):
                    expected = torch.zeros_like(batch.links[row])
                    for place in range(length):
                        expected[place, length - 1 - place] = True
                    assert torch.equal(batch.links[row], expected)

    def test_other_links_are_other_data(self, linked: dict[str, Any], tmp_path: Path) -> None:
        before = prepared(linked, tmp_path).digest
        assert prepared(linked, tmp_path).digest == before
        other = write_lines(tmp_path / "other", [""] * 60)
        assert prepared(merge(linked, {"data": {"alignments": str(other)}}), tmp_path).digest != before
        assert prepared(merge(linked, {"data": {"alignments": None}}), tmp_path).train.links is None

    @pytest.mark.parametrize("count", [59, 61])
    def test_unequal_counts(self, linked: dict[str, Any], tmp_path: Path, count: int) -> None:
        path = write_lines(tmp_path / "other", [""] * count)
        with pytest.raises(SightlineError, match=f"other has {count} lines, and the training text .*one line for each"):
            prepared(merge(linked, {"data": {"alignments": str(path)}}), tmp_path)

    def test_validation_files_have_no_links(self, linked: dict[str, Any], tmp_path: Path) -> None:
        valid = write_tsv(tmp_path / "v.tsv", [("a b", "B A")])
        found = prepared(merge(linked, {"data": {"valid_pairs": str(valid)}}), tmp_path)
        assert found.train.links is not None
        assert found.valid.links is None


class TestModels:
    @pytest.mark.parametrize("recipe", ["bahdanau", "luong", "transformer"])
    def test_the_loss_is_over_what_the_model_sees(self, recipe: str) -> None:
        changes: dict[str, Any] = {"guided": {"weight": 2.0}}
        if recipe == "transformer":
            changes["guided"] |= {"layer": 1, "head": 2}
        model, plain = small_model(recipe, changes), small_model(recipe)
        plain.load_state_dict(model.state_dict())
        batch = random_batch([4, 3], [3, 3])
        batch = Batch(batch.sources, batch.targets, batch.indices, LINKS)
        with capture(model, where=lambda name: name in ("decoder.attention", "decoder.layers.1.cross")) as maps:
            losses = model.loss(batch)
            weights = next(iter(maps.values()))[:, 2 if recipe == "transformer" else 0]
        expected = GuidedAttention("cross_entropy")(weights.float(), LINKS)
        torch.testing.assert_close(losses["guided"], expected)
        torch.testing.assert_close(losses["nll"], plain.loss(batch)["nll"])
        assert model.loss_weights == {"cross_entropy": 1.0, "guided": 2.0}
        assert "guided" not in plain.loss(batch)
        assert model.loss(Batch(batch.sources, batch.targets))["guided"][1] == 0

    def test_only_the_taught_head_and_what_is_before_it_learn(self) -> None:
        model = small_model("transformer", {"guided": {"weight": 1.0, "layer": 0, "head": 1}})
        batch = random_batch([4, 3], [3, 3])
        total, _ = model.loss(Batch(batch.sources, batch.targets, (), LINKS))["guided"]
        total.backward()
        cross = model.decoder.layers[0].cross  # type: ignore[union-attr, index]
        gradient = cross.weight.grad.view(3, 3, 4, 12)  # queries, keys, values; heads; width of a head
        assert gradient[:2, 1].abs().sum() > 0
        assert not gradient[:2, [0, 2]].any()
        assert not gradient[2].any()
        assert model.decoder.layers[1].cross.weight.grad is None  # type: ignore[union-attr, index]

    @pytest.mark.parametrize(("name", "value"), [("layer", 2), ("head", 3)])
    def test_a_head_that_is_not_there(self, name: str, value: int) -> None:
        with pytest.raises(SightlineError, match=f"model.guided.{name}={value}, but the decoder has {value}"):
            small_model("transformer", {"guided": {"weight": 1.0, name: value}})


class TestConfig:
    def filled(self, recipe: str, values: dict[str, Any]) -> Any:
        return fill(build_config(values, recipe), Corpus(1000, 10_000))

    def test_the_taught_head_is_the_one_to_read(self) -> None:
        links = {"data": {"alignments": "links"}}
        config = self.filled("transformer", links)
        assert config.model.guided.weight == 0.5
        assert (config.alignment.layer, config.alignment.head, config.alignment.reading) == (2, 0, "predicts")
        config = self.filled("transformer", merge(links, {"model": {"guided": {"head": 1, "reading": "consumes"}}}))
        assert (config.alignment.layer, config.alignment.head, config.alignment.reading) == (2, 1, "consumes")
        config = self.filled("transformer", merge(links, {"alignment": {"layer": 0}}))
        assert (config.alignment.layer, config.alignment.head) == (0, None)
        config = self.filled("luong", merge(links, {"model": {"guided": {"reading": "consumes"}}}))
        assert (config.alignment.layer, config.alignment.head, config.alignment.reading) == (None, None, "consumes")
        config = self.filled("transformer", merge(links, {"model": {"guided": {"weight": 0}}}))
        assert config.alignment.layer is None
        assert self.filled("transformer", {}).model.guided.weight is None

    @pytest.mark.parametrize(
        ("recipe", "values", "told"),
        [
            ("bahdanau", {"model": {"guided": {"weight": 1}}}, "model.guided.weight needs word links"),
            ("seq2seq", {"data": {"alignments": "x"}}, "data.alignments: the recipe seq2seq has no attention"),
            ("seq2seq", {"training": {"agreement": 1}}, "training.agreement: the recipe seq2seq has no attention"),
            ("luong", {"data": {"alignments": "x", "align_with": "eflomal"}}, "both give word links"),
        ],
    )
    def test_what_does_not_go_together(self, recipe: str, values: dict[str, Any], told: str) -> None:
        with pytest.raises(SightlineError, match=told):
            check_guidance(build_config(values, recipe))


class TestAligner:
    def test_parts_of_words(self) -> None:
        """The aligner sees `the house .` and `das haus .`; its links are told of the words that the text has."""
        seen: list[Any] = []

        def aligner(sources: Any, targets: Any) -> Any:
            seen.extend(zip(sources, targets, strict=True))
            return [{(0, 0), (1, 1), (2, 2)}], [{(0, 0), (1, 1), (2, 2)}]

        pairs = [Pair("", "x"), Pair("the house.", "das Haus .")]
        assert list(aligned(pairs, aligner)) == [set(), {(0, 0), (1, 1), (1, 2)}]
        assert seen == [("the house .", "das Haus .")]

    def test_without_eflomal(self, command: Command, toy_pairs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "eflomal", None)
        done = command("train", "--pairs", toy_pairs, "--align-with", "eflomal", "--output", "never")
        assert "pip install 'sightline[eflomal]'" in done.last_word()

    def test_a_run_with_an_aligner(self, toy_pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its links are kept in the folder, and going on needs no aligner."""

        class Aligner:
            def align(self, sources: Any, targets: Any, links_filename_fwd: str, links_filename_rev: str) -> None:
                links = "".join(f"{' '.join(f'{i}-{i}' for i in range(len(one.split())))}\n" for one in sources)
                for name in (links_filename_fwd, links_filename_rev):
                    Path(name).write_text(links)

        fake = types.ModuleType("eflomal")
        fake.Aligner = Aligner  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "eflomal", fake)
        values = {"data": {"pairs": str(toy_pairs), "align_with": "eflomal"}, "training": {"max_steps": 2}}
        output = tmp_path / "run"
        done = train(build_config(merge(tiny("bahdanau"), values), "bahdanau"), output)
        assert done.config.data.alignments == output / "alignments.gz"
        assert done.config.model.guided.weight == 0.5
        lines = gzip.decompress((output / "alignments.gz").read_bytes()).decode().splitlines()
        assert len(lines) == 400
        monkeypatch.setitem(sys.modules, "eflomal", None)
        again = read_config(output)
        again = again.model_copy(update={"training": again.training.model_copy(update={"max_steps": 3})})
        assert train(again, output, resume=True).result.steps == 3


def checkpoint(run: Path) -> bytes:
    """The weights at the end of a run."""
    found = latest(run / CHECKPOINTS)
    assert found is not None
    return (found / "model.safetensors").read_bytes()


class TestRuns:
    @pytest.mark.parametrize("recipe", ["bahdanau", "transformer"])
    def test_taught_attention_is_an_alignment(self, command: Command, tmp_path: Path, recipe: str) -> None:
        """With gold links and a large weight the alignment error rate on unseen pairs falls below 2%."""
        backwards = recipe == "bahdanau"
        pairs, links = reversed_letters(400) if backwards else diagonal(400)
        sizes = {"layers": 1, "heads": 2, "feedforward": 64} if recipe == "transformer" else {"layers": 1, "width": 32}
        values = {
            "text": {"tokenizer": "word"},
            "data": {
                "pairs": str(write_tsv(tmp_path / "p.tsv", pairs)),
                "alignments": str(write_lines(tmp_path / "links", links)),
                "batch_tokens": 256,
            },
            "model": {"embedding": 32, "dropout": 0.0, "encoder": sizes, "decoder": sizes, "guided": {"weight": 5}},
            "training": {"max_steps": 250, "learning_rate": 1e-2, "warmup": 10, "validate_bleu": 0},
        }
        if backwards:
            values = merge(values, {"model": {"encoder": {"width": 16}}})
        output = tmp_path / "run"
        train(build_config(values, recipe), output)
        unseen, gold = reversed_letters(50, seed=1) if backwards else diagonal(50, seed=1)
        done = command(
            *("align", output, "--pairs", write_tsv(tmp_path / "u.tsv", unseen)),
            *("--gold", write_lines(tmp_path / "gold", gold)),
        )
        first = done.err.splitlines()[0]
        assert float(first.split("rate ")[1].split("%")[0]) < 2, done.err
        assert read_config(output).alignment.layer == (0 if recipe == "transformer" else None)

    def test_resuming_is_exact(self, command: Command, linked: dict[str, Any], tmp_path: Path) -> None:
        data = linked["data"]
        given = [
            *("train", "--recipe", "luong", "--pairs", data["pairs"], "--alignments", data["alignments"]),
            *(*settings("luong"), "--set", "training.schedule=constant"),
        ]
        whole, parts = tmp_path / "whole", tmp_path / "parts"
        assert command(*given, "--output", whole, "--max-steps", 4).code == 0
        assert command(*given, "--output", parts, "--max-steps", 2).code == 0
        assert command("train", "--output", parts, "--resume", "--max-steps", 4).code == 0
        assert checkpoint(whole) == checkpoint(parts)
        other = write_lines(tmp_path / "other", [""] * 60)
        done = command("train", "--output", parts, "--resume", "--max-steps", 5, "--alignments", other)
        assert "the data differs from what the run began with" in done.last_word()

    def test_a_link_outside_is_told(self, command: Command, linked: dict[str, Any], tmp_path: Path) -> None:
        wrong = write_lines(tmp_path / "wrong", ["0-0", "9-0", *[""] * 58])
        given = ("--pairs", linked["data"]["pairs"], "--alignments", wrong, "--output", tmp_path / "run")
        done = command("train", *given, *settings())
        assert f"{wrong}, line 2: link 9-0 (from 0), but the sentences have" in done.last_word()
