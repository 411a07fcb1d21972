"""Lexicons: reading and learning them, and what they do to a model's distribution."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

import sightline
from sightline.batch import Batch, pad
from sightline.cli import app
from sightline.config import build_config
from sightline.errors import SightlineError
from sightline.interop import ctranslate2, marian
from sightline.lexical import LexiconOutput, LexiconView, Told
from sightline.lexicon import WIDEST, Lexicon, read_lexicon
from sightline.models import EncoderDecoder, build_model
from sightline.text import EOS, PAD, UNK, Sizes, WordTokenizer
from tests.commands import Command, letters, settings, write_tsv

SOURCE = WordTokenizer(["der", "Hund", "Katze"], "nfc", False)
TARGET = WordTokenizer(["the", "dog", "cat", "that"], "nfc", False)
VOCABULARY = 9


def lexicon_of(entries: dict[tuple[int, int], float]) -> Lexicon:
    keys = np.array(sorted(entries), dtype=np.int64)
    return Lexicon(keys[:, 0], keys[:, 1], np.array([entries[one, other] for one, other in keys.tolist()]))


# Every source id but 6 has probabilities that sum to 1.
KNOWN = {(4, 4): 0.25, (4, 7): 0.75, (5, 8): 1.0, (6, 5): 0.5, (EOS, EOS): 1.0}


def make(recipe: str, mode: str, **changes: Any) -> EncoderDecoder:
    part = {"layers": 1, "heads": 2, "feedforward": 8, **({} if recipe == "transformer" else {"width": 8})}
    values = {"embedding": 8, "tie": "none", "dropout": 0.0, "encoder": part, "decoder": part}
    values["lexicon"] = {"mode": mode, **changes}
    config = build_config({"model": {"recipe": recipe, **values}}).model
    torch.manual_seed(1)
    sizes = Sizes(VOCABULARY, VOCABULARY, True, lexicon=lexicon_of(KNOWN))
    return build_model(config, sizes).double().eval()


def batch(unknown: bool = False) -> Batch:
    sources = [[4, 5, 4, EOS], [6 if unknown else 5, EOS]]
    return Batch((pad(sources, PAD),), pad([[4, 7, EOS], [8, EOS]], PAD))


def full(model: EncoderDecoder, examples: Batch) -> tuple[Told, Tensor]:
    seen = model.read(examples).features
    return seen, model.output.log_probs(seen)


@pytest.mark.parametrize("mode", ["bias", "linear"])
@pytest.mark.parametrize("recipe", ["bahdanau", "luong", "transformer"])
def test_distribution_steps_loss_and_gradients(recipe: str, mode: str) -> None:
    model, examples = make(recipe, mode), batch()
    assert examples.targets is not None
    seen, log_probs = full(model, examples)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(2, 3).double())
    # Word by word: what the lexicon says of the first prediction.
    expected = dict.fromkeys(range(VOCABULARY), 0.0)
    for source, weight in zip([4, 5, 4, EOS], seen.weights[0, 0].tolist(), strict=True):
        for (one, word), share in KNOWN.items():
            expected[word] += weight * share * (one == source)
    lexical = torch.tensor(list(expected.values()), dtype=torch.float64)
    torch.testing.assert_close(seen.lexical(VOCABULARY)[0, 0].detach(), lexical)
    assert isinstance(model.output, LexiconOutput)
    logits = model.output.vocabulary.logits(seen.features[0, 0]).detach()
    mixture = (logits + (lexical + 0.001).log()).softmax(-1) if mode == "bias" else (lexical + logits.softmax(-1)) / 2
    torch.testing.assert_close(log_probs[0, 0].detach().exp(), mixture)
    state = model.start(examples)
    for number, tokens in enumerate(model.shifted(examples.targets).unbind(1)):
        step = model.step(tokens, state)
        state = step.state
        torch.testing.assert_close(step.log_probs, log_probs[:, number])
    losses = model.loss(examples)
    torch.testing.assert_close(losses["nll"][0], -model.token_log_probs(examples).sum().detach())
    losses["cross_entropy"][0].backward()
    assert all(each.grad is not None and each.grad.isfinite().all() for each in model.parameters())


def test_a_large_epsilon_leaves_the_model_as_it_was() -> None:
    model = make("luong", "bias", epsilon=1e9)
    seen, log_probs = full(model, batch())
    assert isinstance(model.output, LexiconOutput)
    torch.testing.assert_close(log_probs, model.output.vocabulary.log_probs(seen.features))


def test_a_small_epsilon_follows_the_lexicon_of_the_word_looked_at() -> None:
    given = make("luong", "bias").output
    assert isinstance(given, LexiconOutput)
    assert isinstance(given.view, LexiconView)
    output = LexiconOutput(given.vocabulary, given.view, "bias", 1e-12)
    ids, probabilities = (torch.from_numpy(part) for part in lexicon_of(KNOWN).table(VOCABULARY))
    source = torch.tensor([[4, 5, 6]])
    for place, best in enumerate([7, 8, 5]):
        weights = torch.full((1, 1, 3), 0.01).double()
        weights[..., place] = 0.98
        told = Told(
            torch.zeros(1, 1, 8).double(), weights, torch.zeros(1, 1).long(), ids[source], probabilities[source]
        )
        assert output.log_probs(told).argmax().item() == best


def test_linear_sums_to_one_only_where_the_lexicon_does() -> None:
    sums = full(make("luong", "linear"), batch(unknown=True))[1].exp().sum(-1)
    torch.testing.assert_close(sums[0], torch.ones(3).double())
    assert (sums[1] < 0.99).all()
    biased = full(make("luong", "bias"), batch(unknown=True))[1].exp().sum(-1)
    torch.testing.assert_close(biased, torch.ones(2, 3).double())


def test_smoothing_is_that_of_the_whole_distribution() -> None:
    model, examples = make("luong", "bias"), batch()
    assert examples.targets is not None
    seen, log_probs = full(model, examples)
    real = examples.targets.mask
    smoothed, plain = model.output.nll(seen[real], examples.targets.ids[real], 0.1)
    right = log_probs[real].gather(1, examples.targets.ids[real][:, None]).sum()
    torch.testing.assert_close(smoothed, -0.9 * right - 0.1 * log_probs[real].mean(-1).sum())
    torch.testing.assert_close(plain, -right.detach())


def test_reading(tmp_path: Path) -> None:
    path = tmp_path / "lexicon.tsv"
    path.write_text("der\tthe\t0.5\nder\tthat\t0.25\nder\tyon\t0.125\nder\tda\t0.125\nMaus\tmouse\t1\n", "utf-8")
    found = read_lexicon(path, SOURCE, TARGET)
    # What goes to words that are no tokens goes to UNK; sources that are none are left out.
    assert found.sources.tolist() == [4, 4, 4]
    assert dict(zip(found.targets.tolist(), found.probabilities.tolist(), strict=True)) == {UNK: 0.25, 4: 0.5, 7: 0.25}
    assert found.text(SOURCE, TARGET) == "der\tthe\t0.5\nder\t<unk>\t0.25\nder\tthat\t0.25\n"
    path.write_text(found.text(SOURCE, TARGET), "utf-8")
    again = read_lexicon(path, SOURCE, TARGET)
    assert [part.tolist() for part in vars(again).values()] == [part.tolist() for part in vars(found).values()]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("der\tthe\n", "line 1: expected a source, a target and a probability"),
        ("der\tthe\t1\nHund\tdog\t1.5\n", "line 2: expected"),
        ("der\tthe\tmuch\n", "line 1: expected"),
        ("der\tthe\t0.75\nder\tthat\t0.5\n", "the probabilities of 'der' sum to 1.25"),
        ("Maus\tmouse\t1\n", "no source of this lexicon is a token"),
    ],
)
def test_mistakes_of_a_file(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "lexicon.tsv"
    path.write_text(text, "utf-8")
    with pytest.raises(SightlineError, match=message):
        read_lexicon(path, SOURCE, TARGET)


def test_what_is_kept() -> None:
    lexicon = lexicon_of({(0, 1): 0.5, (0, 2): 0.3, (0, 3): 0.195, (0, 4): 0.005, (2, 1): 0.5})
    best = lexicon.best(2, 0.01)
    assert best.targets.tolist() == [1, 2, 1]
    np.testing.assert_allclose(best.probabilities, [0.625, 0.375, 1])
    ids, probabilities = lexicon.table(3)
    assert ids.tolist() == [[1, 2, 3, 4], [0, 0, 0, 0], [1, 0, 0, 0]]
    np.testing.assert_allclose(probabilities[0], [0.5, 0.3, 0.195, 0.005])
    many = lexicon_of({(0, word): word / 20_000 for word in range(1, WIDEST + 50)})
    assert many.table(1)[0].shape == (1, WIDEST)
    assert many.table(1)[0][0, 0] == WIDEST + 49


def command(*arguments: object) -> None:
    result = CliRunner().invoke(app, [str(one) for one in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output


def test_from_pairs_to_a_model_that_knows_words(tmp_path: Path) -> None:
    pairs = write_tsv(tmp_path / "pairs.tsv", letters(200))
    lexicon = tmp_path / "lexicon.tsv"
    command("lexicon", "--pairs", pairs, "--output", lexicon)
    best = {}
    for line in lexicon.read_text("utf-8").splitlines():
        source, target, share = line.split("\t")
        best.setdefault(source, (target, float(share)))
    assert all(target == source.upper() and share > 0.5 for source, (target, share) in best.items())
    assert len(best) == 8
    own = [word for one in ("mode=bias", f"file={lexicon}") for word in ("--set", f"model.lexicon.{one}")]
    model = tmp_path / "model"
    command(
        "train", "--recipe", "luong", "--pairs", pairs, "--output", model, "--max-steps", 2, *settings("luong"), *own
    )
    lexicon.unlink()  # the model folder has its own
    assert "a\tA\t1\n" in (model / "lexicon.tsv").read_text("utf-8")
    translator = sightline.load(model)
    assert translator.files.tokenizers.lexicon is not None
    assert translator.translate("a").text is not None
    command("lexicon", "--pairs", pairs, "--output", lexicon, "--model", model)
    (model / "lexicon.tsv").write_text("a\tB\t1\n", "utf-8")
    with pytest.raises(SightlineError, match="not the lexicon this model was trained with"):
        sightline.load(model)
    (model / "lexicon.tsv").unlink()
    with pytest.raises(SightlineError, match=r"the lexicon lexicon\.tsv is missing"):
        sightline.load(model)


def test_from_word_links(tmp_path: Path, command: Command) -> None:
    pairs = write_tsv(tmp_path / "pairs.tsv", [("a b", "X Y"), ("a  c", "X Z"), ("a", "W"), ("b", "Y")])
    (tmp_path / "links").write_text("0-0 1-1\n0-0 1-1\n0-0\n\n", "utf-8")
    out = tmp_path / "lexicon.tsv"
    arguments = ["lexicon", "--pairs", pairs, "--output", out, "--alignments", tmp_path / "links"]
    assert command(*arguments).code == 0
    # "a" has three links, two of them to X; the last pair has none.
    assert out.read_text("utf-8") == "a\tX\t0.666666667\na\tW\t0.333333333\nb\tY\t1\nc\tZ\t1\n"
    mistakes = {"0-0\n": "1 lines", "\n" * 4: "no pair has a link", "0-0 2-0\n\n\n\n": "line 1: link 2-0"}
    for links, message in mistakes.items():
        (tmp_path / "links").write_text(links, "utf-8")
        done = command(*arguments)
        assert done.code == 2
        assert len(done.err.splitlines()) == 1
        assert message in done.err
    pairs = write_tsv(tmp_path / "pairs.tsv", [("a b", "X Y"), ("a b", "Y X"), ("a", "X"), ("b", "Y")])
    (tmp_path / "links").write_text("0-0 1-1\n0-0 1-1\n\n\n", "utf-8")
    told = command(*arguments, "--least", "0.9").mistake()
    assert "--least 0.9: no target of any source is as probable: choose less" in told
    assert "0.666666667" in out.read_text("utf-8"), "what was there is still there"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"recipe": "seq2seq", "lexicon": {"mode": "bias"}}, "only bahdanau and luong and transformer"),
        ({"recipe": "luong", "lexicon": {"mode": "bias"}, "copying": {"kind": "copynet"}}, "choose one"),
        ({"recipe": "luong", "lexicon": {"mode": "bias", "head": 1}}, "only transformer"),
        ({"recipe": "luong", "lexicon": {"mode": "linear"}, "attention": {"span": "local-p"}}, "weights that sum to 1"),
        (
            {"recipe": "luong", "lexicon": {"mode": "linear"}, "attention": {"choice": "online_monotonic"}},
            "weights that sum to 1",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SightlineError, match=message):
        build_config({"model": values})


def test_a_model_without_its_lexicon_is_not_built() -> None:
    config = build_config({"model": {"recipe": "luong", "lexicon": {"mode": "bias"}, "embedding": 8, "tie": "none",
                           "encoder": {"width": 8, "layers": 1}, "decoder": {"width": 8, "layers": 1}}})  # fmt: skip
    with pytest.raises(SightlineError, match=r"model\.lexicon\.file"):
        build_model(config.model, Sizes(9, 9, True))


def test_other_engines_say_that_they_have_no_lexicon() -> None:
    config = build_config({"model": {"recipe": "transformer", "lexicon": {"mode": "bias"}}}).model
    assert ctranslate2.unsupported(config) == "a model with a lexicon"
    assert marian.unsupported(config) == "a model with a lexicon (model.lexicon.mode=bias)"
