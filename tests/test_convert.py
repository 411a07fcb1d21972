"""A Transformer's decoder made recurrent: the weights that stay, a model like any other, and what cannot be done."""

from pathlib import Path
from typing import Any

import pytest
import torch

from sightline.config import build_config
from sightline.convert import inherited, recurrent_config
from sightline.errors import SightlineError
from sightline.folder import ModelFiles, load_folder, open_files, read_config
from sightline.models import build_model
from tests.commands import Command

LINES = b"a b c\nd e f g\n"


@pytest.fixture(scope="module")
def converted(trained: Any, toy_pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The toy task's Transformer with recurrent self-attention, trained on for a while."""
    from sightline.training.run import train

    files = open_files(trained("transformer"))
    given = {"data": {"pairs": str(toy_pairs)}, "training": {"max_steps": 120}}
    output = tmp_path_factory.mktemp("converted") / "rnn"
    torch.set_num_threads(1)
    train(recurrent_config(files, False, 8, given), output, inherited=inherited(files))
    return output


def test_the_configuration_says_so(trained: Any, converted: Path) -> None:
    before, after = read_config(trained("transformer")), read_config(converted)
    assert (after.model.decoder.attention, after.model.decoder.cross_attention) == ("linear", "full")
    assert (after.model.linear.features, after.model.linear.feature_count) == ("relu", 8)
    assert after.training.learning_rate == before.training.learning_rate / 2  # type: ignore[operator]
    assert after.model.encoder == before.model.encoder
    assert after.text == before.text


def test_it_still_knows_the_task(converted: Path, command: Command) -> None:
    done = command("translate", converted, stdin=LINES)
    assert (done.code, done.out) == (0, "A B C\nD E F G\n")


def test_every_command_takes_it(converted: Path, command: Command, toy_pairs: Path, tmp_path: Path) -> None:
    few = tmp_path / "few.tsv"
    few.write_text("".join(toy_pairs.read_text().splitlines(keepends=True)[:4]))
    for arguments in (
        ("evaluate", converted, "--pairs", few),
        ("align", converted, "--pairs", few),
        ("score", converted, "--pairs", few),
        ("report", converted, "--output", tmp_path / "report.html"),
    ):
        done = command(*arguments)
        assert done.code == 0, done


def test_ctranslate2_refuses_it(converted: Path, command: Command, toy_pairs: Path, tmp_path: Path) -> None:
    told = "cannot run linear attention (model.decoder.attention=linear)"
    assert told in command("translate", converted, "--engine", "ctranslate2", stdin=LINES).mistake()
    export = command("export", converted, tmp_path / "out", "--to", "ctranslate2", "--pairs", toy_pairs)
    assert told in export.mistake()
    marian = command("export", converted, tmp_path / "out", "--to", "huggingface", "--pairs", toy_pairs)
    assert "MarianMT cannot express" in marian.mistake()


def test_all_weights_stay_but_the_softmax(trained: Any) -> None:
    files = open_files(trained("transformer"))
    config = recurrent_config(files, True, 8, {})
    model = build_model(config.model, files.tokenizers.sizes)
    fresh = {name: value.clone() for name, value in model.state_dict().items() if ".features." in name}
    inherited(files).fill(model)
    found, old = model.state_dict(), load_folder(files.path).model.state_dict()
    assert set(found) - set(old) == set(fresh)
    assert len(fresh) == 2 * 2  # a matrix and a bias, of self- and cross-attention
    assert all(torch.equal(found[name], value) for name, value in {**old, **fresh}.items())


def test_a_converted_run_can_go_on(converted: Path, command: Command, tmp_path: Path) -> None:
    import shutil

    copy = tmp_path / "rnn"
    shutil.copytree(converted, copy)
    done = command("train", "--output", copy, "--resume", "--more-steps", "1")
    assert done.code == 0, done


def files_of(**model: Any) -> ModelFiles:
    config = build_config({"model": {key: value for key, value in model.items() if key != "recipe"}}, model["recipe"])
    return ModelFiles(Path("some-model"), config, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ({"recipe": "luong"}, "recurrent already"),
        ({"recipe": "transformer", "decoder": {"attention": "linear"}}, "recurrent already"),
        ({"recipe": "transformer", "decoder": {"attention": "lsh"}, "lsh": {"buckets": 4}}, "cannot be converted"),
    ],
)
def test_what_cannot_be_converted(model: dict[str, Any], told: str) -> None:
    with pytest.raises(SightlineError, match=told):
        recurrent_config(files_of(**model), False, 32, {})


def test_features_that_other_parts_have_stay() -> None:
    files = files_of(recipe="transformer", encoder={"attention": "linear"})
    assert recurrent_config(files, True, 16, {}).model.linear == files.config.model.linear


def test_a_shorter_run_with_a_lower_rate() -> None:
    config = build_config({"training": {"max_minutes": 9, "learning_rate": 0.004, "warmup": 7}}, "transformer")
    files = ModelFiles(Path("some-model"), config, None)  # type: ignore[arg-type]
    training = recurrent_config(files, False, 32, {}, ["training.seed=5"]).training
    assert (training.max_minutes, training.max_steps) == (3, None)
    assert (training.learning_rate, training.warmup, training.seed) == (0.002, None, 5)


@pytest.mark.parametrize(
    ("arguments", "told"), [(("--to", "lstm"), "converted to rnn"), (("--to", "rnn"), "give --pairs FILE")]
)
def test_mistakes_on_the_command_line(arguments: tuple[str, ...], told: str, command: Command, tmp_path: Path) -> None:
    assert told in command("convert", tmp_path, *arguments).mistake()
