"""The edge to the world outside: standard streams, one line for every mistake, exit codes."""

from __future__ import annotations

import math
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import typer

from sightline.errors import OtherRankError, SightlineError
from sightline.launch import record_failure, speaks, wait_for_first

if TYPE_CHECKING:
    from sightline.translation import Translation

MISTAKE, INTERRUPTED, NO_READER = 2, 130, 141


def say(line: str, aloud: bool = False) -> None:
    """Tells the person, not the pipe; of several ranks the first one does, unless it must be said `aloud`."""
    if aloud or speaks():
        print(line, file=sys.stderr, flush=True)


def complain(message: str) -> None:
    """Tells of a mistake, in one line whatever the message holds."""
    line = " ".join(message.splitlines())
    say(f"sightline: {line}")
    record_failure(line)


def standard_input() -> BufferedReader:
    """Standard input as bytes, through a reader of its own.

    A thread that waits for input holds the reader's lock, and Python, which wants to close `sys.stdin` when it ends,
    would break off with a fatal error.
    """
    return open(sys.stdin.fileno(), "rb", closefd=False)


@contextmanager
def bar(total: float, what: str, show: bool = True, after: float = 0.0) -> Iterator[Callable[[float], None]]:
    """A bar with an ETA on stderr, where a person watches; what it gives is called with each number of items done.

    It shows itself `after` so many seconds: what is done by then needs none.
    """
    if not show or not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    task = progress.add_task(what, total=total)
    begun = time.monotonic()

    def advance(count: float) -> None:
        progress.advance(task, count)
        if time.monotonic() - begun >= after:
            progress.start()

    try:
        advance(0)
        yield advance
    finally:
        progress.stop()


def watched(items: Iterable[Any], watch: Callable[[int], None]) -> Iterator[Any]:
    """The items; `watch` is told of each."""
    for item in items:
        yield item
        watch(1)


@contextmanager
def keeping(path: Path) -> Iterator[TextIO]:
    """A text file that grows beside `path` and takes its place when the block ends well.

    If it does not, what was written so far stays in `path` with `.partial` at its end: hours of work are not thrown
    away for the last line.
    """
    partial = path.with_name(f"{path.name}.partial")
    if path.exists() and not path.is_file():  # a device or a pipe
        partial = path
    try:
        with open(partial, "w", encoding="utf-8") as stream:
            yield stream
    except BrokenPipeError:
        raise
    except SightlineError as error:
        raise SightlineError(f"{error}{_left(partial)}") from None
    except OSError as error:
        raise SightlineError(f"{path}: cannot write: {error.strerror or error}{_left(partial)}") from None
    except KeyboardInterrupt:
        say(f"interrupted{_left(partial)}")
        raise
    if partial != path:
        os.replace(partial, path)


def _left(partial: Path) -> str:
    """Where the lines are that were written before a mistake; a file without any goes."""
    if not partial.is_file():
        return ""
    if partial.stat().st_size:
        return f"; the lines before it are in {partial}"
    partial.unlink()
    return ""


def program() -> str:
    """How to call this program from a shell: by its name if it is on the path, else by where it lies."""
    if shutil.which("sightline") or Path(sys.argv[0]).name != "sightline":
        return "sightline"
    return shlex.quote(os.path.relpath(sys.argv[0]))


def json_line(values: dict[str, Any]) -> str:
    """A record as a line of JSON, which knows no infinity: null stands for a number that is not finite."""
    import json

    return json.dumps(_finite(values), ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def presented(number: int, one: Translation, n_best: int, as_json: bool) -> str:
    """One translation as a line of output (several lines for n best)."""
    if as_json:
        return json_line(one.as_dict())
    rows = []
    for each in [one, *one.others]:
        parts = [each.text] if each.alignment is None else [each.text, each.alignment]
        if n_best == 1:
            rows.append("\t".join(parts))
        else:  # as Marian has it
            rows.append(" ||| ".join([str(number), *parts, f"F0= {each.log_prob:.6g}", f"{each.score:.6g}"]))
    return "\n".join(rows)


def run(app: typer.Typer) -> NoReturn:
    """Runs the command line: mistakes give one line and exit code 2, never a traceback."""
    _open_streams()
    try:
        code = _invoke(app)
        sys.stdout.flush()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second one would only disturb the clearing up
        code = INTERRUPTED
    except BrokenPipeError:
        code = NO_READER
        _drop_output()
    except OSError as error:
        complain(f"{error.filename or 'standard output'}: {error.strerror or error}")
        code = MISTAKE
        _drop_output()
    if code == MISTAKE:
        wait_for_first()
    sys.exit(code)


def _invoke(app: typer.Typer) -> int:
    """Not by calling `app`, which would answer to Ctrl-C and to a closed pipe in its own way."""
    command = typer.main.get_command(app)
    try:
        with command.make_context("sightline", sys.argv[1:]) as context:
            command.invoke(context)
    except typer.Exit as done:
        return done.exit_code
    except OtherRankError as error:
        say(f"sightline: {error}", error.aloud)
        return MISTAKE
    except SightlineError as error:
        complain(str(error))
        return MISTAKE
    except Exception as error:
        if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "allocate" in str(error)):  # torch's
            complain("not enough memory: choose a smaller model, batch or beam")
            return MISTAKE
        # Typer keeps the class of its usage errors to itself.
        if not hasattr(error, "format_message"):
            raise
        path = getattr(getattr(error, "ctx", None), "command_path", "sightline")
        complain(f"{plain_usage(error.format_message())} (see {path} --help)")
        return MISTAKE
    return 0


# Options that people look for where they are not, and what to say instead.
ELSEWHERE = {
    "--html": "`sightline align MODEL --html FILE` makes the page that shows where a model looks",
    "--sample": "`--strategy sample` draws translations, `--samples` says how many",
}


def plain_usage(message: str) -> str:
    """A mistake in the options with what was probably meant."""
    wrong = message.partition("No such option: ")[2].split(" ")[0].rstrip(".")
    if wrong in ELSEWHERE:
        return f"No such option: {wrong}; {ELSEWHERE[wrong]}"
    said, _, options = message.partition(" (Possible options: ")
    if not options:
        return message.rstrip(".")
    return f"{said.rstrip('.')}; did you mean {options.removesuffix(')').replace(', ', ' or ')}?"


def _open_streams() -> None:
    """Standard streams that a caller closed lead nowhere; what we print is UTF-8 wherever we are."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, open(nowhere, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8")


def _drop_output() -> None:
    """Sends what is still buffered nowhere, so that Python does not complain about it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
