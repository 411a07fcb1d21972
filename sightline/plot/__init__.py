"""Pictures of attention: in the terminal, as SVG, as PNG, and as an interactive page. None of it needs torch."""

from sightline.plot.blocks import terminal
from sightline.plot.heatmap import Heatmap
from sightline.plot.page import ModelView, Page, SentenceView, html, save
from sightline.plot.raster import curve_figure, growth_figure, length_figure, line_chart, png
from sightline.plot.vector import svg

__all__ = [
    "Heatmap",
    "ModelView",
    "Page",
    "SentenceView",
    "curve_figure",
    "growth_figure",
    "html",
    "length_figure",
    "line_chart",
    "png",
    "save",
    "svg",
    "terminal",
]
