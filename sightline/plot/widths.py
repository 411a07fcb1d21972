"""How wide text is in a terminal: East Asian characters take two columns, combining marks none."""

from __future__ import annotations

import unicodedata

_JOINER = "\u200d"
_EMOJI_STYLE = "\ufe0f"


def clusters(text: str) -> list[str]:
    """Splits text into what a reader takes for one character: a base with its marks, a joined emoji, a flag.

    It is the part of Unicode's rules that matters for columns, not all of them.
    """
    result: list[str] = []
    for character in text:
        if result and (_extends(character) or result[-1].endswith(_JOINER) or _completes_flag(result[-1], character)):
            result[-1] += character
        else:
            result.append(character)
    return result


def display_width(text: str) -> int:
    """Columns the text takes in a terminal."""
    return sum(_cluster_width(cluster) for cluster in clusters(text))


def fit(text: str, width: int, align: str = "left") -> str:
    """The text in exactly `width` columns: padded, or cut with an ellipsis. `align` is "left" or "right"."""
    if display_width(text) > width:
        kept, used = "", 0
        for cluster in clusters(text):
            used += _cluster_width(cluster)
            if used > width - 1:
                break
            kept += cluster
        text = kept + "…" if width > 0 else ""
    padding = " " * (width - display_width(text))
    return padding + text if align == "right" else text + padding


def _cluster_width(cluster: str) -> int:
    if _EMOJI_STYLE in cluster or any(unicodedata.east_asian_width(character) in "WF" for character in cluster):
        return 2
    if _is_flag_letter(cluster[0]):
        return 2
    return 0 if all(_extends(character) for character in cluster) else 1


def _extends(character: str) -> bool:
    """Belongs to the character before it and takes no column: marks, joiners, skin tones."""
    invisible = unicodedata.category(character) in ("Mn", "Me", "Cf") and character != "\u00ad"
    return invisible or 0x1F3FB <= ord(character) <= 0x1F3FF


def _is_flag_letter(character: str) -> bool:
    return 0x1F1E6 <= ord(character) <= 0x1F1FF


def _completes_flag(before: str, character: str) -> bool:
    return len(before) == 1 and _is_flag_letter(before) and _is_flag_letter(character)
