"""The one exception that a user is meant to read."""

import difflib
from collections.abc import Iterable


class SightlineError(Exception):
    """A mistake the user can mend: one line that says what, where and how. The command line exits with 2."""


class OtherRankError(SightlineError):
    """This rank cannot go on because of another one, which knows the cause; `aloud` if it is this one that tells."""

    def __init__(self, message: str, aloud: bool = False) -> None:
        super().__init__(message)
        self.aloud = aloud


def nearest(name: str, valid: Iterable[str]) -> str:
    """`; did you mean 'x'?` when a valid name is close, else the list of valid names."""
    names = list(valid)
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"valid: {', '.join(names)}"
