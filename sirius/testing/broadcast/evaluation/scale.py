"""What a figure is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sirius.testing.broadcast.evaluation.plot import Chart


def _nothing(_done: int, _total: int) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Scale:
    """How large a figure is to be."""

    seed: int = 1
    clients: int | None = None
    """In each region; None: as many as the figure has by itself."""
    progress: Callable[[int, int], None] = _nothing
    """Called with how many runs are done, of how many."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Charts, and what else is worth telling."""

    charts: tuple[Chart, ...]
    facts: dict[str, Any] = field(default_factory=dict)
