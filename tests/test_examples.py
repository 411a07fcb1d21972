"""The configurations under examples/ are valid, name what their README says, and build."""

from pathlib import Path

import pytest

from sightline.config import load_config
from sightline.models import build_model, parameter_count
from sightline.sizes import Corpus, fill
from sightline.text import Sizes

EXAMPLES = Path(__file__).parent.parent / "examples"
CONFIGS = sorted(EXAMPLES.rglob("*.yaml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_it_builds(path: Path) -> None:
    config = load_config(path)
    filled = fill(config, Corpus(29_000, 400_000, 2))
    vocabulary = filled.text.vocabulary
    assert vocabulary is not None
    model = build_model(filled.model, Sizes(vocabulary, vocabulary, True), filled.training.label_smoothing)
    assert parameter_count(model) > 1_000_000
    assert f"`{path.name}`" in (path.parent / "README.md").read_text()


def test_there_are_some() -> None:
    assert CONFIGS
