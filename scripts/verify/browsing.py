"""What the checks in a browser share: a server on loopback, facts that must hold, a quiet page."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from chromium import Page

__all__ = ["Report", "check_quiet", "served", "write_result"]


class Server(http.server.ThreadingHTTPServer):
    """Serves a folder on this machine alone and notes what is asked for."""

    asked: list[str]


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        assert isinstance(self.server, Server)
        self.server.asked.append(self.path)


@contextlib.contextmanager
def served(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Address of a folder served on loopback, and the list of paths asked for."""
    handler = functools.partial(_Handler, directory=str(folder))
    with Server(("127.0.0.1", 0), handler) as server:
        server.asked = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", server.asked
        server.shutdown()


class Report:
    """What was checked, and what came out."""

    def __init__(self) -> None:
        self.checks: list[dict[str, Any]] = []
        self.facts: dict[str, Any] = {}

    def check(self, what: str, passed: object, found: Any = None) -> None:
        """Note one fact that must hold."""
        self.checks.append({"check": what, "passed": bool(passed), "found": found})
        mark = "ok    " if passed else "FAILED"
        print(f"{mark} {what}{'' if found is None else f': {found}'}", file=sys.stderr)

    @property
    def failed(self) -> int:
        """Number of facts that do not hold."""
        return sum(not c["passed"] for c in self.checks)


def check_quiet(page: Page, report: Report, url: str, label: str) -> None:
    """Nothing in the console, nothing asked for but the page."""
    complaints = page.complaints()
    report.check(f"{label}: no message, exception or dialog", not complaints, complaints or None)
    others = [r for r in page.requests() if r != url]
    report.check(f"{label}: no request leaves the page", not others, others or None)


def write_result(result: dict[str, Any], target: str | None) -> None:
    """Write a result as JSON: to a file, to stdout for `-`, nowhere for None."""
    text = json.dumps(result, indent=1)
    if target == "-":
        print(text)
    elif target:
        Path(target).write_text(text + "\n", encoding="utf-8")
