"""`sirius sim sprinkler`"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import click

from sirius.cli.command import command as _command
from sirius.cli.output import Output
from sirius.testing.broadcast.evaluation.figures import FIGURES
from sirius.testing.broadcast.evaluation.plot import svg
from sirius.testing.broadcast.evaluation.scale import Drawn, Scale

_ALL = "all"


@_command(
    "sirius sim sprinkler 9 10",
    "sirius sim sprinkler all --clients 100 --out plots",
    "sirius sim sprinkler 7 --json | jq .facts.recovered_s",
)
@click.option(
    "--out",
    "folder",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("."),
    help="Where the plots go, as SVG; default: here.",
)
@click.option("--seed", type=click.IntRange(0), default=1, help="Of all randomness; default: 1.")
@click.option(
    "--clients",
    type=click.IntRange(2, 100_000),
    help="In each region, for 5b, 6 and 7; default: 1000, and 50 for 7.",
)
@click.argument("figures", metavar="FIGURE...", nargs=-1, required=True)
def command(
    out: Output, figures: tuple[str, ...], folder: Path, seed: int, clients: int | None
) -> None:
    """Redraw figures of the Sprinkler paper: 5b, 6, 7, 9, 10 or all.

    5b: throughput by shuffle time and fanout. 6: latency and throughput as the load grows. 7: a link between regions
    is out for 22 seconds. 9: how the popularity of keys fades. 10: how many events a proxy keeps. Proxies, clients and
    histories are the real ones, in simulated time on simulated links. All of them take ten minutes of one core,
    and two or three with --clients 100.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in _chosen(figures):
        began = time.perf_counter()
        out.remark(f"figure {name} …")
        progress = partial(out.progress, f"figure {name}")
        drawn = FIGURES[name](Scale(seed, clients, progress))
        out.clear_progress()
        _show(out, name, drawn, _write(folder, drawn), time.perf_counter() - began)


def _chosen(figures: tuple[str, ...]) -> list[str]:
    unknown = [name for name in figures if name not in FIGURES and name != _ALL]
    if unknown:
        known = ", ".join((*FIGURES, _ALL))
        raise click.BadParameter(
            f"there is no figure {unknown[0]}: take {known}", click.get_current_context()
        )
    return list(FIGURES) if _ALL in figures else list(dict.fromkeys(figures))


def _write(folder: Path, drawn: Drawn) -> list[Path]:
    paths = [folder / f"{chart.name}.svg" for chart in drawn.charts]
    for path, chart in zip(paths, drawn.charts, strict=True):
        path.write_text(svg(chart), encoding="utf-8")
    return paths


def _show(out: Output, name: str, drawn: Drawn, paths: list[Path], took_s: float) -> None:
    if out.as_json:
        lines = {
            chart.name: {line.label: line.points for line in chart.lines} for chart in drawn.charts
        }
        files = list(map(str, paths))
        facts = {"figure": name, "seconds": round(took_s, 1), "files": files, "facts": drawn.facts}
        out.object({**facts, "lines": lines})
    else:
        out.line(f"figure {name}: {', '.join(map(str, paths))}, in {took_s:.0f} s")
        out.pairs((key, str(value)) for key, value in drawn.facts.items())
    out.flush()
