"""A browser for tests: Chromium without a window, spoken to in its own protocol over two pipes."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# Key: its number, and the character that it types.
KEYS = {
    "Tab": (9, ""),
    "Enter": (13, "\r"),
    "Escape": (27, ""),
    " ": (32, " "),
    "End": (35, ""),
    "Home": (36, ""),
    "ArrowLeft": (37, ""),
    "ArrowUp": (38, ""),
    "ArrowRight": (39, ""),
    "ArrowDown": (40, ""),
}
SHIFT = 8


class Tab:
    """One page. Messages are JSON, each ended by a zero byte."""

    def __init__(self, send: Any, receive: Any) -> None:
        self._send, self._receive, self._number = send, receive, 0
        self._session: str | None = None
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """Sends a command and waits for its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._send.write(json.dumps(message).encode() + b"\0")
        self._send.flush()
        while (answer := self._next()).get("id") != self._number:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def open(self, path: Path) -> None:
        """Shows a file, once it is loaded."""
        self.call("Page.navigate", url=path.resolve().as_uri())
        while self._next().get("method") != "Page.loadEventFired":
            pass

    def media(self, scheme: str = "light", width: int = 1280, height: int = 900) -> None:
        """A light or dark desk, a wide or narrow window."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression on the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def settle(self) -> None:
        """Waits until the page has drawn what is new, and has answered to its own new size."""
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")

    def press(self, key: str, times: int = 1, shift: bool = False) -> None:
        """A key, as a person presses it."""
        number, text = KEYS[key]
        about = {"key": key, "code": key.strip() or "Space", "windowsVirtualKeyCode": number}
        for _ in range(times):
            for kind in ("keyDown" if text else "rawKeyDown", "keyUp"):
                typed = {"text": text} if text and kind == "keyDown" else {}
                self.call("Input.dispatchKeyEvent", type=kind, modifiers=SHIFT * shift, **about, **typed)

    def point(self, x: float, y: float) -> None:
        """Moves the pointer."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path: Path) -> None:
        """The whole page as PNG."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(data))

    def _next(self) -> dict[str, Any]:
        content = bytearray()
        while (byte := self._receive.read(1)) != b"\0":
            if not byte:
                raise RuntimeError("the browser has gone")
            content += byte
        message: dict[str, Any] = json.loads(content)
        if message.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(str(message["params"]["exceptionDetails"]))
        if message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
            self.complaints.append(message["params"]["entry"]["text"])
        return message


@contextmanager
def browser(profile: Path) -> Iterator[Tab]:
    """An open tab; `profile` is a folder of the browser's own. It reads commands at descriptor 3 and answers at 4."""
    assert CHROMIUM is not None
    commands, answers = os.pipe(), os.pipe()
    line = [
        *("bash", "-c", f'exec "$0" "$@" 3<&{commands[0]} 4>&{answers[1]}', CHROMIUM),
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
        *("--disable-background-networking", "--remote-debugging-pipe", f"--user-data-dir={profile}"),
    ]
    pipes = (commands[0], answers[1])
    process = subprocess.Popen(line, pass_fds=pipes, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for descriptor in pipes:
        os.close(descriptor)
    with open(commands[1], "wb") as send, open(answers[0], "rb") as receive:
        try:
            tab = Tab(send, receive)
        except (RuntimeError, BrokenPipeError):
            pytest.skip(f"Chromium does not start here: {process.wait(timeout=60)}")
        try:
            yield tab
        finally:
            tab._session = None
            tab.call("Browser.close")
            process.wait(timeout=60)
