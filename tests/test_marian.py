"""To Hugging Face's MarianMT and back: equal logits, equal ids, equal translations."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch
from safetensors.numpy import save_file
from transformers import MarianConfig, MarianMTModel, MarianTokenizer

import sightline
from sightline.batch import Batch, pad
from sightline.config import build_config, merge
from sightline.engines.pytorch import PyTorchEngine
from sightline.errors import SightlineError
from sightline.folder import Tokenizers, load_folder, open_files, save_config, save_model, save_tokenizers
from sightline.interop import huggingface, marian
from sightline.interop import weights as tensors
from sightline.interop.verified import export
from sightline.models import build_model
from sightline.readers import Pair
from sightline.text import BOS, EOS, PAD, load_tokenizer, train_tokenizer
from tests.commands import Command, write_tsv

LINES = [
    f"Der {adjective} Hund {verb} das Haus ." for adjective in ("alte", "junge", "graue") for verb in ("sieht", "hört")
]
LINES += [
    f"The {adjective} dog {verb} the house ." for adjective in ("old", "young", "grey") for verb in ("sees", "hears")
]
POST = {"norm_position": "post", "positions": "sinusoidal"}
SIZES: dict[str, Any] = {
    "embedding": 12,
    "encoder": {"layers": 2, "heads": 2, "feedforward": 20},
    "decoder": {"layers": 1, "heads": 3, "feedforward": 16},
}


def make_model(path: Path, kind: str = "unigram", **model: Any) -> Path:
    """A post-norm Transformer of random weights in a folder."""
    text = {"tokenizer": kind, "vocabulary": 90, "byte_fallback": False}
    config = build_config({"text": text, "model": merge(SIZES, merge(POST, model))}, "transformer")
    tokenizer = train_tokenizer(LINES, config.text, 90)
    tokenizers = Tokenizers(tokenizer, tokenizer)
    network = build_model(config.model, tokenizers.sizes)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        network.output.bias[EOS] -= 3  # one that writes nothing would verify nothing
    path.mkdir()
    save_tokenizers(path, tokenizers)
    save_config(path, config)
    save_model(path, network)
    return path


def our_logits(folder: Path, sources: list[list[int]], targets: list[list[int]]) -> torch.Tensor:
    """Log-probabilities `(B, T, V)`."""
    model = load_folder(folder).model
    source, target = pad(sources, PAD), pad(targets, PAD)
    with torch.no_grad():
        decoded = model.decoder(model.encode(Batch((source,))), model.target_embedding(model.shifted(target)))
        return model.output.log_probs(decoded.features)


def their_logits(network: Any, sources: list[list[int]], inputs: list[list[int]], padding: int) -> torch.Tensor:
    source, target = pad(sources, padding), pad(inputs, padding)
    with torch.no_grad():
        found = network(input_ids=source.ids, attention_mask=source.mask.long(), decoder_input_ids=target.ids)
    return found.logits.log_softmax(-1)


SOURCES, TARGETS = [[5, 9, 17, 8, EOS], [30, 6, EOS]], [[12, 7, 33, EOS], [8, 40, 41, EOS]]


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "silu"])
@pytest.mark.parametrize("width", [12, 18])
def test_equal_logits(activation: str, width: int, tmp_path: Path) -> None:
    folder = make_model(tmp_path / "model", "word", activation=activation, embedding=width)
    files = open_files(folder)
    huggingface.export(files, tmp_path / "out")
    network = MarianMTModel.from_pretrained(tmp_path / "out").eval()
    size = files.tokenizers.source.size
    sources, targets = ([[min(id, size - 1) for id in row] for row in rows] for rows in (SOURCES, TARGETS))
    theirs = their_logits(network, sources, [[BOS, *row[:-1]] for row in targets], PAD)
    torch.testing.assert_close(theirs, our_logits(folder, sources, targets), atol=1e-4, rtol=1e-4)
    generation = network.generation_config
    assert (generation.num_beams, generation.forced_eos_token_id, generation.suppress_tokens) == (5, None, [PAD, BOS])


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_the_tokenizer_goes_along(kind: str, tmp_path: Path) -> None:
    files = open_files(make_model(tmp_path / "model", kind))
    huggingface.export(files, tmp_path / "out")
    tokenizer = MarianTokenizer.from_pretrained(tmp_path / "out")
    ours = files.tokenizers.source
    for line in [*LINES, "  The  dog ", "Haus"]:
        ids = tokenizer(line).input_ids
        assert ids == [*ours.encode(line), EOS]
        assert tokenizer.decode(ids, skip_special_tokens=True) == ours.decode(ids)


@pytest.mark.parametrize("kind", ["unigram", "char"])
def test_there_and_back(kind: str, tmp_path: Path) -> None:
    folder = make_model(tmp_path / "model", kind)
    files = open_files(folder)
    save_config(
        folder, files.config.model_copy(update={"alignment": files.config.alignment.model_copy(update={"layer": 0})})
    )
    huggingface.export(open_files(folder), tmp_path / "out")
    config = huggingface.import_marian(tmp_path / "out", tmp_path / "back")
    assert (config.text, config.model, config.alignment.layer) == (files.config.text, files.config.model, 0)
    one, other = (sightline.load(path).translate(LINES, beam=3) for path in (folder, tmp_path / "back"))
    assert [(each.text, each.links) for each in one] == [(each.text, each.links) for each in other]
    assert (folder / "model.safetensors").stat().st_size == (tmp_path / "back" / "model.safetensors").stat().st_size


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ({"norm_position": "pre"}, "layers that normalise before a sublayer"),
        ({"norm": "rms"}, "rms normalisation"),
        ({"positions": "learned"}, "learned positions"),
        ({"activation": "swiglu"}, "a gated feed-forward layer"),
        ({"tie": "output"}, "embeddings that are not all tied"),
    ],
)
def test_what_marian_cannot_express(model: dict[str, Any], told: str, tmp_path: Path) -> None:
    files = open_files(make_model(tmp_path / "model", "word", **model))
    with pytest.raises(SightlineError, match=f"MarianMT cannot express {told}"):
        huggingface.export(files, tmp_path / "out")
    assert marian.unsupported(build_config({}, "luong").model) == "a luong decoder with a lstm encoder"


def spm(path: Path, lines: list[str]) -> list[str]:
    """A sentencepiece model as the makers of OPUS-MT train them; its pieces."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(path), vocab_size=60, hard_vocab_limit=False, minloglevel=2
    )
    path.with_suffix(".model").rename(path.with_suffix(".spm"))
    path.with_suffix(".vocab").unlink()
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path.with_suffix(".spm")))
    return [processor.IdToPiece(id) for id in range(3, processor.GetPieceSize())]


@pytest.fixture(scope="module")
def opus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like those of OPUS-MT: sentencepiece for each side, one list, start and padding its last entry."""
    folder = tmp_path_factory.mktemp("opus")
    german, english = spm(folder / "source", LINES[:6]), spm(folder / "target", LINES[6:])
    pieces = ["</s>", "<unk>", *dict.fromkeys([*german, *english]), ">>deu<<", "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({piece: number for number, piece in enumerate(pieces)}))
    last = len(pieces) - 1
    sizes = {"d_model": 12, "encoder_layers": 2, "decoder_layers": 2, "max_position_embeddings": 64}
    inner = {
        f"{part}_{name}": value
        for part in ("encoder", "decoder")
        for name, value in (("attention_heads", 2), ("ffn_dim", 20))
    }
    special = {"pad_token_id": last, "decoder_start_token_id": last, "eos_token_id": 0, "forced_eos_token_id": 0}
    config = MarianConfig(
        vocab_size=len(pieces), activation_function="swish", scale_embedding=True, **sizes, **inner, **special
    )
    torch.manual_seed(0)
    network = MarianMTModel(config)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(5)
        network.model.shared.weight[last] = 0
        network.final_logits_bias.add_(torch.randn_like(network.final_logits_bias))
        network.final_logits_bias[0, last] = 0
    for part in (network.model.encoder, network.model.decoder):
        with torch.no_grad():
            part.embed_positions.weight.copy_(part.embed_positions.create_weight())
    network.save_pretrained(folder)
    return folder


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_a_foreign_model(opus: Path, tmp_path: Path) -> None:
    """Their numbers of entries are not ours, their start symbol is their padding; logits and text are the same."""
    config = huggingface.import_marian(opus, tmp_path / "model")
    assert (config.text.tokenizer, config.text.joint, config.model.activation) == ("marian", False, "silu")
    files = open_files(tmp_path / "model")
    tokenizer, network = MarianTokenizer.from_pretrained(opus), MarianMTModel.from_pretrained(opus).eval()
    vocabulary = json.loads((opus / "vocab.json").read_text())
    last = len(vocabulary) - 1

    def ours(ids: list[int]) -> list[int]:
        names = {number: piece for piece, number in vocabulary.items()}
        table = {files.tokenizers.target.piece(id): id for id in range(files.tokenizers.target.size)}
        return [table[names[number]] for number in ids]

    lines = [*LINES[:6], ">>deu<< Der Hund", "Der ＨＵＮＤ   sieht  ½"]
    for line in lines:
        assert [*files.tokenizers.source.encode(line), EOS] == ours(tokenizer(line).input_ids)
    sources = [tokenizer(line).input_ids for line in lines[:2]]
    targets = [[7, 12, 30, 0], [9, 5, 6, 0]]
    theirs = their_logits(network, sources, [[last, *row[:-1]] for row in targets], last)
    found = our_logits(tmp_path / "model", [ours(row) for row in sources], [ours(row) for row in targets])
    order = torch.tensor(ours(list(range(len(vocabulary) - 1))))
    torch.testing.assert_close(found[:, :, order], theirs[:, :, :-1], atol=1e-4, rtol=1e-4)
    rows = network.generate(**tokenizer(lines[:4], return_tensors="pt", padding=True), num_beams=1, max_new_tokens=12)
    expected = [ours([number for number in row[1:12] if number not in (0, last)]) for row in rows.tolist()]
    for engine in ("pytorch", "ctranslate2"):
        translations = sightline.load(tmp_path / "model", engine=engine).translate(lines[:4], beam=1, align=False)
        assert [one.ids[:11] for one in translations] == expected


def test_a_foreign_model_there_and_back(opus: Path, tmp_path: Path) -> None:
    """A tokenizer for each side goes along too."""
    huggingface.import_marian(opus, tmp_path / "model")
    huggingface.export(open_files(tmp_path / "model"), tmp_path / "export")
    huggingface.import_marian(tmp_path / "export", tmp_path / "again")
    first, again = (sightline.load(tmp_path / name, engine="pytorch") for name in ("model", "again"))
    for side in ("source", "target"):
        ours, theirs = (getattr(one.files.tokenizers, side) for one in (first, again))
        assert [ours.encode(line) for line in LINES] == [theirs.encode(line) for line in LINES]
    for one, other in zip(first.translate(LINES[:4]), again.translate(LINES[:4]), strict=True):
        assert (one.ids, one.text) == (other.ids, other.text)
        assert one.score == pytest.approx(other.score, abs=1e-5)


def change(folder: Path, **values: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def write(name: str, content: str) -> Callable[[Path], object]:
    """Another content for a file of the folder."""
    return lambda folder: (folder / name).write_text(content)


def without(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def settings(**values: Any) -> Callable[[Path], object]:
    return lambda folder: change(folder, **values)


def reshape(name: str, shape: tuple[int, ...]) -> Callable[[Path], object]:
    """Another shape for one of the tensors."""

    def damage(folder: Path) -> None:
        weights = tensors.read(folder / "model.safetensors")
        save_file({**weights, name: np.zeros(shape, np.float32)}, folder / "model.safetensors")

    return damage


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (settings(normalize_before=True), "normalize_before is True; only models with False can be imported"),
        (settings(activation_function="tanh"), "activation_function is 'tanh'"),
        (settings(model_type="bart"), "only 'marian' can be imported"),
        (settings(decoder_layers=3), "model.decoder.layers.2.self_attn.q_proj.weight is missing"),
        (settings(decoder_layers=10**9), "model.decoder.layers.2.self_attn.q_proj.weight is missing"),
        (settings(decoder_layers=2.5), "config.json: decoder_layers is 2.5; it must be a whole number above 0"),
        (settings(d_model=32), "model.safetensors: shape of model.shared.weight is (44, 12), expected (44, 32)"),
        (settings(d_model=None), "config.json: d_model is None; it must be a whole number above 0"),
        (settings(vocab_size="x"), "config.json: vocab_size is 'x'; it must be a whole number above 0"),
        (settings(vocab_size=45), "shape of model.shared.weight is (44, 12), expected (45, 12)"),
        (settings(eos_token_id=10**6), "padding, start, end and '<unk>' must have numbers below vocab_size"),
        (settings(pad_token_id="x"), "padding, start, end and '<unk>' must have numbers below vocab_size"),
        (reshape("final_logits_bias", (1, 5)), "shape of final_logits_bias is (1, 5), expected (1, 44)"),
        (reshape("model.encoder.layers.0.fc1.weight", (20, 5)), "layers.0.fc1.weight is (20, 5), expected (20, 12)"),
        (without("model.safetensors"), "no model.safetensors"),
        (without("config.json"), "not a MarianMT folder"),
        (write("config.json", "{"), "config.json: not valid JSON"),
        (write("config.json", '"x"'), "config.json: not a JSON object"),
        (write("vocab.json", "[]"), "vocab.json: not a JSON object"),
        (write("vocab.json", '{"<unk>": [1]}'), "vocab.json: every entry must have a whole number"),
        (without("vocab.json"), "vocab.json: cannot read"),
        (write("source.spm", "junk"), "source.spm: not a sentencepiece model, or a damaged one"),
        (write("target.spm", "junk"), "target.spm: not a sentencepiece model, or a damaged one"),
        (without("source.spm"), "source.spm: cannot read the tokenizer"),
        (write("sightline.json", "[1]"), "sightline.json: not a JSON object"),
    ],
)
def test_folders_that_cannot_be_imported(
    damage: Callable[[Path], object], told: str, opus: Path, tmp_path: Path, command: Command
) -> None:
    folder = Path(shutil.copytree(opus, tmp_path / "opus"))
    damage(folder)
    assert told in command("import", folder, tmp_path / "out").mistake()
    assert not (tmp_path / "out").exists()


def test_a_pickle_is_not_imported(opus: Path, tmp_path: Path, command: Command) -> None:
    folder = Path(shutil.copytree(opus, tmp_path / "opus"))
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    told = command("import", folder, tmp_path / "out").mistake()
    assert "only pytorch_model.bin, a pickle" in told
    assert "save_pretrained(NEW)" in told


@pytest.mark.parametrize(
    ("kind", "damage", "told"),
    [
        ("unigram", write("source.spm", "junk"), "source.spm: not a sentencepiece model, or a damaged one"),
        ("unigram", without("source.spm"), "source.spm: cannot read the tokenizer"),
        ("word", without("joint.vocab"), "joint.vocab: cannot read the tokenizer"),
        ("unigram", write("sightline.json", "[1]"), "sightline.json: not a JSON object"),
    ],
)
def test_exports_that_cannot_be_imported(
    kind: str, damage: Callable[[Path], object], told: str, tmp_path: Path, command: Command
) -> None:
    huggingface.export(open_files(make_model(tmp_path / "model", kind)), tmp_path / "export")
    damage(tmp_path / "export")
    assert told in command("import", tmp_path / "export", tmp_path / "out").mistake()
    assert not (tmp_path / "out").exists()


def test_an_export_with_the_tokenizer_of_another(tmp_path: Path, command: Command) -> None:
    for kind in ("unigram", "bpe"):
        huggingface.export(open_files(make_model(tmp_path / kind, kind)), tmp_path / f"{kind}-export")
    shutil.copy(tmp_path / "bpe-export" / "source.spm", tmp_path / "unigram-export")
    sizes = [open_files(tmp_path / kind).tokenizers.target.size for kind in ("bpe", "unigram")]
    assert sizes[0] != sizes[1]
    told = command("import", tmp_path / "unigram-export", tmp_path / "out").mistake()
    assert f"source.spm: has {sizes[0]} entries, but vocab_size in config.json is {sizes[1]}" in told


def test_the_command_imports(opus: Path, tmp_path: Path, command: Command) -> None:
    done = command("import", opus, tmp_path / "out")
    assert (done.code, done.out) == (0, "")
    assert "imported" in (tmp_path / "out" / "README.md").read_text()
    assert "holds a model already" in command("import", opus, tmp_path / "out").mistake()
    assert command("translate", tmp_path / "out", stdin=b"Der Hund\n").code == 0
    tokenizer = load_tokenizer(tmp_path / "out", "source", open_files(tmp_path / "out").config.text)
    assert tokenizer.pieces("Hund")[0].startswith("▁")
    assert tokenizer.decode(tokenizer.encode("Der Hund")) == "Der Hund"
    with pytest.raises(SightlineError, match="belongs to an imported model"):
        train_tokenizer(LINES, open_files(tmp_path / "out").config.text, 50)


def test_scores_of_imported_models(opus: Path, tmp_path: Path) -> None:
    """An entry of our own is never expected: probabilities of the others sum to 1."""
    huggingface.import_marian(opus, tmp_path / "model")
    files = open_files(tmp_path / "model")
    model = PyTorchEngine(files, "cpu").model
    log_probs = model.output.log_probs(torch.zeros(1, 12)).detach().numpy()[0]
    assert np.exp(log_probs[PAD]) == 0
    assert np.exp(np.delete(log_probs, PAD)).sum() == pytest.approx(1)


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_a_verified_export(tmp_path: Path, command: Command) -> None:
    """Decoded by `generate` on the other side; the card tells that probabilities and ids are the same."""
    folder = make_model(tmp_path / "model")
    lines = write_tsv(tmp_path / "pairs.tsv", list(zip(LINES[:6], LINES[6:], strict=True)))
    done = command("export", folder, tmp_path / "out", "--to", "huggingface", "--pairs", lines, "--tolerance", 100)
    assert done.code == 0, done
    card = (tmp_path / "out" / "README.md").read_text()
    assert "its tokenizer gives the same ids for 6 of 6 lines" in card
    assert "largest difference of a reference token's log-probability: " in card
    difference = float(card.split("log-probability: ")[1].split()[0])
    assert difference < 1e-3
    assert "MarianMTModel.from_pretrained(FOLDER)" in card


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_an_export_with_other_probabilities_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_model(tmp_path / "model", "unigram")
    pairs = [Pair(line, line) for line in LINES[:3]]
    convert = marian.to_marian

    def changed(weights: Any, config: Any) -> Any:
        found = convert(weights, config)
        found["final_logits_bias"] = found["final_logits_bias"].copy()
        found["final_logits_bias"][0, EOS] += 0.1
        return found

    monkeypatch.setattr("sightline.interop.marian.to_marian", changed)
    with pytest.raises(SightlineError, match=r"log-probabilities differ by up to .* nothing was written"):
        export(folder, tmp_path / "out", "huggingface", pairs, tolerance=100)
    assert not (tmp_path / "out").exists()
    monkeypatch.undo()
    export(folder, tmp_path / "out", "huggingface", pairs, tolerance=100)
    assert (tmp_path / "out").is_dir()
