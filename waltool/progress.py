"""A progress bar on standard error, for work that takes a while and somebody who watches."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TextIO

from waltool.output import Output
from waltool.text import number, size

if TYPE_CHECKING:
    from sirius.wal import Batch

_BAR: Final = 24
_EVERY_S: Final = 0.1
_PATIENCE_S: Final = 0.5
"""Work that is done before this shows no bar at all."""


class Progress:
    """Draws how far a piece of work is. Does nothing unless `shown`."""

    def __init__(
        self,
        label: str,
        total: int,
        *,
        shown: bool,
        unit: str = "",
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._label = label
        self._total = max(total, 1)
        self._shown = shown
        self._format = size if unit == "bytes" else number
        self._stream = stream or sys.stderr
        self._clock = clock
        self._began = clock()
        self._due = self._began + _PATIENCE_S
        self._drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.clear()

    def at(self, done: int, total: int | None = None) -> None:
        """Say how much is done. Cheap enough to be called for every batch."""
        if not self._shown:
            return
        if total is not None:
            self._total = max(total, 1)
        now = self._clock()
        if now >= self._due:
            self._due = now + _EVERY_S
            self._draw(done, now - self._began)

    def over(self, batches: Iterator[Batch], first: int) -> Iterator[Batch]:
        """Pass batches on and show how far they are, counted from sequence number `first`."""
        for batch in batches:
            yield batch
            self.at(batch.last - first + 1)

    def _draw(self, done: int, elapsed_s: float) -> None:
        share = min(done / self._total, 1.0)
        filled = int(share * _BAR)
        rate = done / elapsed_s if elapsed_s else 0.0
        left_s = (self._total - done) / rate if rate else 0.0
        bar = "#" * filled + "." * (_BAR - filled)
        text = (
            f"{self._label} [{bar}] {share:4.0%}  {self._format(int(rate))}/s  ETA {_clock(left_s)}"
        )
        self._stream.write(f"\r{text}\x1b[K")
        self._stream.flush()
        self._drawn = True

    def clear(self) -> None:
        """Take the bar away."""
        if self._drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._drawn = False


def progress(out: Output, label: str, total: int, *, beside_records: bool = False) -> Progress:
    """Return a progress bar, which stays away where it would mix with records on the same terminal."""
    return Progress(
        label, total, shown=out.shows_progress and not (beside_records and out.to_terminal)
    )


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
