"""Drive a Chromium without a screen through its debugging pipe: no package, no port, no network.

Source: Chrome DevTools Protocol, https://chromedevtools.github.io/devtools-protocol/; with
`--remote-debugging-pipe` the browser reads messages from descriptor 3 and writes them to 4, each
one JSON document ended by a NUL byte.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["Browser", "Page", "find_browser"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# As root it needs --no-sandbox; the rest keeps it from looking for hosts of its maker.
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)

_NUMBER = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(n), fcntl.F_DUPFD, 10) for n in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find_browser() -> str | None:
    """Path of a Chromium: `CHROMIUM` in the environment, else the first one on the search path."""
    named = os.environ.get("CHROMIUM")
    if named:
        return shutil.which(named)
    return next((found for found in map(shutil.which, _NAMES) if found), None)


class Browser:
    """A running browser.

    Args:
        path: The program.
    """

    def __init__(self, path: str) -> None:
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        # A step between gives the two ends their numbers, which the caller may be using itself.
        ends = (str(to_read), str(to_write))
        command = [sys.executable, "-c", _NUMBER, *ends, path, *_FLAGS]
        command.append(f"--user-data-dir={self._profile.name}")
        self._process = subprocess.Popen(
            command,
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._rest = b""
        self._last = 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(Exception):
            self.call("Browser.close", seconds=5)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)
        self._profile.cleanup()

    def call(
        self, method: str, session: str | None = None, seconds: float = 30, **params: Any
    ) -> dict[str, Any]:
        """Call a method of the protocol; events that come meanwhile are kept in `events`.

        Raises:
            RuntimeError: The browser answers with an error, ends or stays silent.
        """
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        for answer in self._messages(seconds):
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer.get("result", {}))
        raise RuntimeError(f"{method}: no answer in {seconds} s")

    def _messages(self, seconds: float) -> Iterator[dict[str, Any]]:
        """What arrives until the time is over."""
        end = time.monotonic() + seconds
        while True:
            while b"\0" in self._rest:
                text, self._rest = self._rest.split(b"\0", 1)
                message = json.loads(text)
                if "method" in message:
                    self.events.append(message)
                yield message
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._read], [], [], left)[0]:
                return
            data = os.read(self._read, 1 << 16)
            if not data:
                raise RuntimeError(f"the browser ended with status {self._process.poll()}")
            self._rest += data

    def wait(self, method: str, session: str, seconds: float = 30) -> None:
        """Wait for an event, which may have come already."""
        if self._has(method, session):
            return
        for _ in self._messages(seconds):
            if self._has(method, session):
                return
        raise RuntimeError(f"no {method} in {seconds} s")

    def _has(self, method: str, session: str) -> bool:
        return any(e["method"] == method and e.get("sessionId") == session for e in self.events)


class Page:
    """A tab of a browser, with everything it complains about or asks the network for.

    Args:
        browser: The browser.
        width, height: Size of the window in pixels.
        phone: Whether it is a touch screen with 3 device pixels to a pixel.
        dark: Whether the viewer prefers dark pages.
    """

    def __init__(
        self,
        browser: Browser,
        *,
        width: int = 1280,
        height: int = 800,
        phone: bool = False,
        dark: bool = False,
    ) -> None:
        self._browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        attached = browser.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=3 if phone else 1,
            mobile=phone,
        )
        self.call("Emulation.setTouchEmulationEnabled", enabled=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method for this tab."""
        return self._browser.call(method, self._session, **params)

    def open(self, url: str) -> float:
        """Load a page; milliseconds until it is there."""
        self._browser.events.clear()
        start = time.perf_counter()
        self.call("Page.navigate", url=url)
        self._browser.wait("Page.loadEventFired", self._session)
        return (time.perf_counter() - start) * 1e3

    def value(self, expression: str) -> Any:
        """Value of an expression in the page.

        Raises:
            RuntimeError: It throws.
        """
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        self.value("new Promise(f => requestAnimationFrame(() => requestAnimationFrame(f)))")

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """A mouse event: `mouseMoved`, `mousePressed`, `mouseReleased`, `mouseWheel`."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)
        self.settle()

    def click(self, x: float, y: float) -> None:
        """Press and release the left button."""
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)

    def key(self, key: str, text: str | None = None) -> None:
        """Press and release a key; `text` is what it types."""
        typed = {} if text is None else {"text": text}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, **typed)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key)
        self.settle()

    def type(self, text: str) -> None:
        """Type a text into what has the focus."""
        self.call("Input.insertText", text=text)
        self.settle()

    def screenshot(self, path: Path, scale: float = 1.0) -> None:
        """Save what the window shows as PNG."""
        self.settle()
        found = self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(found["data"]))

    def events(self, *methods: str) -> list[dict[str, Any]]:
        """Parameters of the events of these kinds since the page was opened."""
        self.settle()
        return [
            e["params"]
            for e in self._browser.events
            if e["method"] in methods and e.get("sessionId") == self._session
        ]

    def complaints(self, show: Callable[[dict[str, Any]], str] = json.dumps) -> list[str]:
        """Errors and warnings of the console, exceptions, dialogs."""
        calls = self.events("Runtime.consoleAPICalled")
        found = [e for e in calls if e["type"] in ("error", "warning", "assert")]
        found += self.events(
            "Runtime.exceptionThrown", "Log.entryAdded", "Page.javascriptDialogOpening"
        )
        return [show(e) for e in found]

    def requests(self) -> list[str]:
        """Addresses asked for, the page itself included; what it carries itself is none."""
        found = [e["request"]["url"] for e in self.events("Network.requestWillBeSent")]
        return [url for url in found if not url.startswith("data:")]
