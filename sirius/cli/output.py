"""Output for people and for programs: aligned lines and colours, or with `--json` one object a line."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sirius.cli.text import escape

_SGR: Final = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold": "1", "dim": "2"}
_BAR: Final = 24
_EVERY_S: Final = 0.1


class Output:
    """Standard output, and remarks on standard error."""

    def __init__(
        self, *, as_json: bool = False, color: bool | None = None, quiet: bool = False
    ) -> None:
        self.stream = sys.stdout
        self.as_json = as_json
        self.quiet = quiet
        self.to_terminal = self.stream.isatty()
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        self.color = (self.to_terminal and not plain) if color is None else color
        self._drawn_at = float("-inf")
        self._drawn = False

    def paint(self, text: str, style: str) -> str:
        return f"\x1b[{_SGR[style]}m{text}\x1b[0m" if self.color else text

    def line(self, text: str = "") -> None:
        """Write a line; what came from elsewhere must have been escaped before."""
        self.stream.write(text + "\n")

    def object(self, value: Mapping[str, Any]) -> None:
        """Write one JSON object on a line."""
        self.stream.write(json.dumps(value) + "\n")

    def remark(self, text: str) -> None:
        """Tell a person something aside, on standard error."""
        if not self.quiet and not self.as_json:
            print(f"sirius: {escape(text)}", file=sys.stderr, flush=True)

    def flush(self) -> None:
        self.stream.flush()

    def pairs(self, rows: Iterable[tuple[str, str]]) -> None:
        """Write names and values, the values below each other."""
        rows = list(rows)
        width = max(len(name) for name, _ in rows)
        for name, value in rows:
            self.line(f"  {name:<{width}}  {value}".rstrip())

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[str]], left: str = "") -> None:
        """Write a table: columns named in `left` (by their heads) to the left, the others to the right."""
        for number, line in enumerate(table_lines(heads, rows, left)):
            self.line(self.paint(line, "bold") if number == 0 else line)

    def progress(self, label: str, done: int, total: int) -> None:
        """Draw how far a piece of work is, on standard error, if somebody watches."""
        now = time.monotonic()
        if self.quiet or self.as_json or not sys.stderr.isatty() or now < self._drawn_at + _EVERY_S:
            return
        share = min(done / max(total, 1), 1.0)
        bar = "#" * int(share * _BAR)
        sys.stderr.write(f"\r{label} [{bar:.<{_BAR}}] {share:4.0%}\x1b[K")
        sys.stderr.flush()
        self._drawn_at, self._drawn = now, True

    def clear_progress(self) -> None:
        """Take the bar away."""
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            self._drawn = False


def table_lines(heads: Sequence[str], rows: Sequence[Sequence[str]], left: str = "") -> list[str]:
    """Return the lines of a table."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    aligned = ["<" if head in left.split() else ">" for head in heads]
    return [
        (
            "  " + "  ".join(f"{c:{a}{w}}" for c, a, w in zip(row, aligned, widths, strict=True))
        ).rstrip()
        for row in (heads, *rows)
    ]
