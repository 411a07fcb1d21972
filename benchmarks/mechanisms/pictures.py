"""The heat-maps that lie beside the atlas's pages: what they are called, and how they get there. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.mechanisms.records import ROOT
from sightline.files import write_text
from sightline.plot import Heatmap, svg

PICTURES = ROOT / "docs" / "attention" / "heat-maps"


def picture_name(record: str, path: Sequence[str]) -> str:
    """What the heat-map of an arm of a record is called, which lies at `path` in it."""
    return "-".join([Path(record).stem, *path]).replace(" ", "-").replace(",", "")


def write_picture(path: Path, heatmaps: Heatmap | Sequence[Heatmap]) -> None:
    """One heat-map or several, one below the other, as an SVG file; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, svg(heatmaps))
