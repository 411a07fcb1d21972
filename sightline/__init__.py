"""Sightline: sequence-to-sequence models that you train yourself and can look inside.

`sightline.load(folder).translate("…")` is the short way; `sightline --help` lists the commands.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from sightline.translation import Translation
    from sightline.translator import Translator, load

__all__ = ["Translation", "Translator", "__version__", "load"]


def __getattr__(name: str) -> Any:
    """Loads the translator only when it is asked for."""
    if name == "Translation":
        from sightline.translation import Translation

        return Translation
    if name in ("Translator", "load"):
        from sightline import translator

        return getattr(translator, name)
    raise AttributeError(f"module 'sightline' has no attribute '{name}'")
