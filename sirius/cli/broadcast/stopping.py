"""When to end."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Final

_STDIN: Final = 0
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def watch(*, until_eof: bool) -> asyncio.Event:
    """Return what is set by SIGTERM or Ctrl-C, or if wanted by the end of standard input. Watches from now on."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def told() -> None:
        stop.set()
        # Whoever cannot wait sends the signal again.
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    def read() -> None:
        if not os.read(_STDIN, 4096):
            loop.remove_reader(_STDIN)
            stop.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, told)
    if until_eof:
        loop.add_reader(_STDIN, read)
    return stop
