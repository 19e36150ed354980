"""Line charts as SVG: a few dozen lines instead of a plotting library (decision 0017)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Final
from xml.sax.saxutils import escape

WIDTH: Final = 640
HEIGHT: Final = 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 16, 52, 52
_LEGEND_Y: Final = 42
_CHAR_WIDTH: Final = 6.6
_COLORS: Final = ("#1f5fa8", "#c2410c", "#15803d", "#7e22ce", "#a16207", "#0f766e")
_STEPS: Final = (1, 2, 5, 10)
_TICKS: Final = 6

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart."""

    label: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart, and what its axes are called."""

    name: str
    title: str
    x: str
    y: str
    lines: tuple[Line, ...]
    log_x: bool = False
    log_y: bool = False
    zero_y: bool = True
    """Whether the axis begins at 0; of no use on a logarithmic one."""


class _Axis:
    """Turns values into places from `begin` to `end`."""

    def __init__(self, values: list[float], begin: float, end: float, log: bool) -> None:
        self._log, self._begin, self._end = log, begin, end
        low, high = min(values), max(values)
        self._low: float
        self._high: float
        if log:
            self._low, self._high = floor(log10(low)), max(ceil(log10(high)), floor(log10(low)) + 1)
        else:
            step = self._step = _step((high - low) or abs(high) or 1.0)
            self._low, self._high = floor(low / step) * step, ceil(high / step) * step
            if self._low == self._high:
                self._high += step

    def place(self, value: float) -> float:
        value = log10(value) if self._log else value
        share = (value - self._low) / (self._high - self._low)
        return self._begin + share * (self._end - self._begin)

    def ticks(self) -> list[float]:
        if self._log:
            return [10.0**power for power in range(int(self._low), int(self._high) + 1)]
        count = round((self._high - self._low) / self._step)
        return [self._low + number * self._step for number in range(count + 1)]


def _step(extent: float) -> float:
    """Return a round distance between ticks."""
    raw = extent / _TICKS
    power = 10.0 ** floor(log10(raw))
    return next(step * power for step in _STEPS if step * power >= raw)


def svg(chart: Chart) -> str:
    """Return a chart as the text of an SVG file; the same chart gives the same text."""
    points = [point for line in chart.lines for point in line.points]
    ys = [y for _, y in points] + ([0.0] if chart.zero_y and not chart.log_y else [])
    across = _Axis([x for x, _ in points], _LEFT, WIDTH - _RIGHT, chart.log_x)
    up = _Axis(ys, HEIGHT - _BOTTOM, _TOP, chart.log_y)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        _text(WIDTH / 2, 20, chart.title, "middle", 'font-size="14"'),
        *_grid(across, up),
        _text((WIDTH + _LEFT) / 2, HEIGHT - 12, chart.x, "middle"),
        _text(-HEIGHT / 2, 16, chart.y, "middle", 'transform="rotate(-90)"'),
        *_lines(chart, across.place, up.place),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _grid(across: _Axis, up: _Axis) -> Iterator[str]:
    bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    for tick in across.ticks():
        at = across.place(tick)
        yield f'<path d="M{at:.1f} {_TOP}V{bottom}" stroke="#e5e7eb"/>'
        yield _text(at, bottom + 16, _number(tick), "middle")
    for tick in up.ticks():
        at = up.place(tick)
        yield f'<path d="M{_LEFT} {at:.1f}H{right}" stroke="#e5e7eb"/>'
        yield _text(_LEFT - 6, at + 4, _number(tick), "end")


def _lines(
    chart: Chart, across: Callable[[float], float], up: Callable[[float], float]
) -> Iterator[str]:
    at = float(_LEFT)
    for number, line in enumerate(chart.lines):
        color = _COLORS[number % len(_COLORS)]
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in line.points)
        yield f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.8"/>'
        if len(line.points) <= 24:
            for place in path.split():
                x, _, y = place.partition(",")
                yield f'<circle cx="{x}" cy="{y}" r="2.6" fill="{color}"/>'
        yield f'<path d="M{at:.1f} {_LEGEND_Y - 4}h18" stroke="{color}" stroke-width="3"/>'
        yield _text(at + 22, _LEGEND_Y, line.label, "start")
        at += 36 + _CHAR_WIDTH * len(line.label)


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(text)}</text>'


def _number(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{round(value, 9):g}"
