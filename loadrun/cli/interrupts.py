"""Ctrl-C ends a run within a second, also when one inference takes longer than that.

Python handles a signal between two instructions, so a long call into native code holds it up. The
signal's byte on a socket wakes a thread of ours at once; when the main thread has not handled the
signal a little later, the process says what it has and ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

__all__ = ["end_now", "note_last_words", "prompt_interrupts"]

_PATIENCE_S = 0.7
_last_words: list[Callable[[], str]] = []


def note_last_words(words: Callable[[], str]) -> None:
    """Have this printed when the process ends without having handled Ctrl-C itself."""
    _last_words[:] = [words]


@contextlib.contextmanager
def prompt_interrupts(exit_code: int) -> Iterator[None]:
    """Watch for Ctrl-C inside the block; does nothing outside the main thread.

    Args:
        exit_code: What the process ends with when it has to end at once.
    """
    _last_words.clear()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handled = threading.Event()

    def handle(_signal: int, _frame: FrameType | None) -> None:
        handled.set()
        raise KeyboardInterrupt

    reader, writer = socket.socketpair()
    writer.setblocking(False)
    before = signal.signal(signal.SIGINT, handle)
    old = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    args = (reader, handled, exit_code)
    threading.Thread(target=_watch, args=args, name="loadrun-interrupts", daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(old)
        signal.signal(signal.SIGINT, before)
        writer.close()  # ends the thread


def _watch(reader: socket.socket, handled: threading.Event, exit_code: int) -> None:
    with reader:
        while data := reader.recv(64):
            if signal.SIGINT not in data or handled.wait(_PATIENCE_S):
                continue
            with contextlib.suppress(OSError, ValueError):
                print("; ".join(["interrupted", *(w() for w in _last_words)]), file=sys.stderr)
            end_now(exit_code)


def end_now(exit_code: int) -> NoReturn:
    """End the process without waiting for what other threads are in."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
        sys.stdout.flush()
    os._exit(exit_code)
