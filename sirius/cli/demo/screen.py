"""What the audience sees: events as lines, and below them, on a terminal, a table that is redrawn."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sirius.cli.output import Output, table_lines

_EVERY_S: Final = 0.25
_HEADS: Final = ("node", "role", "state", "applied", "lag", "reads/s")
_LEFT: Final = "node role state"


class Seen(NamedTuple):
    """One node at one moment."""

    label: str
    status: dict[str, Any] | None
    reads: int


class Screen:
    """Writes to one output. For one thread."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._is_live = out.to_terminal and not out.as_json
        self._began = time.monotonic()
        self._height = 0
        self._before: tuple[float, dict[str, int]] = (self._began, {})
        self._drawn_at = float("-inf")

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began

    def event(self, text: str, style: str = "", **facts: Any) -> None:
        """Tell what happens: a line for people, an object for programs."""
        self._erase()
        if self._out.as_json:
            self._out.object({"at_s": round(self.elapsed_s, 3), "event": text, **facts})
        else:
            at = self._out.paint(f"{self.elapsed_s:6.1f} s", "dim")
            self._out.line(f"{at}  {self._out.paint(text, style) if style else text}")
        self._out.flush()

    def begin_rates(self) -> None:
        """Reading begins now, with nothing read so far."""
        self._before = time.monotonic(), {}

    def is_due(self) -> bool:
        """Whether it is time to look at the nodes again."""
        return self._is_live and time.monotonic() >= self._drawn_at + _EVERY_S

    def draw(self, nodes: Sequence[Seen]) -> None:
        """Draw the table in the place of the one before."""
        if self._is_live:
            self._erase()
            self._height = self._write(nodes)
            self._drawn_at = time.monotonic()

    def table(self, nodes: Sequence[Seen]) -> None:
        """Write a table that stays."""
        self._erase()
        if not self._out.as_json:
            self._write(nodes)

    def _write(self, nodes: Sequence[Seen]) -> int:
        lines = table_lines(_HEADS, self._rows(nodes), _LEFT)
        for number, line in enumerate(lines):
            self._out.line(self._out.paint(line, "bold") if number == 0 else line)
        self._out.flush()
        return len(lines)

    def _rows(self, nodes: Sequence[Seen]) -> list[tuple[str, ...]]:
        now, reads = time.monotonic(), {seen.label: seen.reads for seen in nodes}
        then, before = self._before
        self._before = now, reads
        return [_row(seen, before.get(seen.label, 0), max(now - then, 1e-3)) for seen in nodes]

    def _erase(self) -> None:
        if self._height:
            self._out.stream.write(f"\x1b[{self._height}A\x1b[J")
            self._height = 0


def _row(seen: Seen, reads_before: int, seconds: float) -> tuple[str, ...]:
    if seen.status is None:
        return seen.label, "–", "down", "–", "–", "–"
    status = seen.status
    rate = (seen.reads - reads_before) / seconds
    counts = f"{status['applied']:,}", f"{status['lag']:,}", f"{rate:,.0f}"
    return seen.label, status["role"], status["state"], *counts
