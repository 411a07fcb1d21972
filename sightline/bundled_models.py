"""The models that come with Sightline, found by their names. No torch here."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from sightline.errors import SightlineError

FOLDER = Path(__file__).parent / "bundled"
CONFIG = "config.yaml"


def bundled_models() -> dict[str, Path]:
    """Their folders by name; none where they were left out of an install."""
    return {path.parent.name: path.parent for path in sorted(FOLDER.glob(f"*/{CONFIG}"))}


def locate(model: str | Path) -> Path:
    """The folder of a model: as it is given, or a bundled model's if it is but its name.

    A model folder of that name where the program runs goes before it; a folder of other things does not.
    """
    path = Path(model)
    if len(path.parts) != 1 or (path / CONFIG).is_file() or any(path.glob(f"*/{CONFIG}")):
        return path
    return bundled_models().get(path.name, path)


def asked_name(folder: Path) -> str:
    """What a model is asked for by: its name, or where its folder is."""
    return folder.name if is_bundled(folder) else str(folder)


def is_bundled(folder: Path) -> bool:
    """Whether a folder is one of them."""
    return folder.resolve().parent == FOLDER.resolve()


def check_own(folder: Path) -> None:
    """Refuses to change a bundled model: others may use it, and an update would undo it."""
    if is_bundled(folder):
        raise SightlineError(
            f"{folder}: a model that comes with Sightline is not changed: copy its folder, and name that"
        )


def told_names(name: str) -> str:
    """For an error: what could be meant by a name that is none."""
    names = bundled_models()
    close = get_close_matches(name.lower().replace("_", "-"), names, n=1, cutoff=0.75)
    if close:
        return f", or did you mean {close[0]}, which comes with Sightline?"
    return f", or a model that comes with Sightline: {', '.join(names)}" if names else ""


def title(folder: Path) -> str:
    """What a model's card calls it."""
    try:
        first = (folder / "README.md").read_text(encoding="utf-8").partition("\n")[0]
    except (OSError, UnicodeDecodeError):
        return ""
    return first.removeprefix("#").strip()
