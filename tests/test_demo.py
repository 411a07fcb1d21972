"""The demo from its first run to its second, with little time to learn."""

from pathlib import Path

import pytest

from sightline import demo
from sightline.config import RunConfig, build_config, merge


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo's run with a tiny model that stops after a few updates, and a small test part."""
    full = demo.demo_config

    def tiny(minutes: float) -> RunConfig:
        changes = {
            "data": {"pairs": str(demo.bundled("test")), "batch_tokens": 400},
            "text": {"vocabulary": 600},
            "model": {"embedding": 16, "encoder": {"feedforward": 16}, "decoder": {"feedforward": 16}},
            "training": {"max_steps": 6, "validate_bleu": 4},
        }
        return build_config(merge(full(minutes).model_dump(mode="json"), changes))

    monkeypatch.setattr(demo, "demo_config", tiny)
    read = demo.read_pairs
    monkeypatch.setattr(demo, "read_pairs", lambda *given: read(*given)[:20])


def test_the_demo_trains_once_and_then_goes_straight_on(
    short: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[str] = []
    demo.run_demo(tmp_path / "demo", 1.0, told.append)
    first = capsys.readouterr().out
    assert "BLEU" in first
    assert "chrF" in first
    assert "tok:13a" in first  # the signature
    assert all(sentence in first for sentence in demo.SENTENCES)
    page = (tmp_path / "demo" / "alignment.html").read_text(encoding="utf-8")
    assert "Tom" in page
    assert any("only 6 updates in 1 minute, so the model is weak" in line for line in told)
    assert any("--minutes 334" in line for line in told)
    weights = (tmp_path / "demo" / "model" / "model.safetensors").read_bytes()

    told.clear()
    demo.run_demo(tmp_path / "demo", 1.0, told.append)
    assert any("trained already, with 6 updates" in line for line in told)
    assert capsys.readouterr().out == first
    assert (tmp_path / "demo" / "model" / "model.safetensors").read_bytes() == weights


def test_the_demos_own_settings_are_valid() -> None:
    config = demo.demo_config(6.0)
    assert config.training.max_minutes == 6.0
    assert config.training.schedule == "cosine"
    assert config.data.pairs == demo.bundled("train")
