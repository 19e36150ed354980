"""Which figures of the paper there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sirius.testing.broadcast.evaluation.collection import figure_9, figure_10
from sirius.testing.broadcast.evaluation.dissemination import figure_5b, figure_6, figure_7
from sirius.testing.broadcast.evaluation.scale import Drawn, Scale

FIGURES: Final[dict[str, Callable[[Scale], Drawn]]] = {
    "5b": figure_5b,
    "6": figure_6,
    "7": figure_7,
    "9": figure_9,
    "10": figure_10,
}
