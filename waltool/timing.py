"""How long work took, and stopping it politely."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

clock = time.monotonic


class Stopwatch:
    """Runs from the moment it is made."""

    def __init__(self) -> None:
        self._began = clock()

    @property
    def seconds(self) -> float:
        return round(clock() - self._began, 3)


def duration(seconds: float) -> str:
    """Show a length of time: 75.2 is 1 min 15 s."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


class Stop:
    """Whether somebody pressed Ctrl-C."""

    def __init__(self) -> None:
        self.wanted = False

    def __call__(self) -> bool:
        return self.wanted

    def request(self, _signal: int, _frame: FrameType | None) -> None:
        """Ask for a stop at the next good moment; asked twice, stop at once."""
        if self.wanted:
            raise KeyboardInterrupt
        self.wanted = True


@contextmanager
def polite_interrupt() -> Iterator[Stop]:
    """Meanwhile, have the first Ctrl-C ask and only the second one interrupt. For the main thread."""
    stop = Stop()
    before = signal.signal(signal.SIGINT, stop.request)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
