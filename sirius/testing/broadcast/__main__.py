"""`python -m sirius.testing.broadcast --seed 17`: run seeds, and say what they broke.

Exits with 0 if everything held, 1 if a promise was broken, 2 on wrong usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from sirius.testing.broadcast.faults import draw_faults
from sirius.testing.broadcast.many import Totals, run_many
from sirius.testing.broadcast.settings import draw_settings
from sirius.testing.broadcast.simulation import Result, run
from sirius.testing.broadcast.traps import TRAPS, hunt


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return the exit code."""
    options = _parser().parse_args(arguments)
    if options.trap:
        return _hunt(options)
    return _one(options) if options.count == 1 else _many(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sirius.testing.broadcast", description="Try to break the broadcast layer."
    )
    parser.add_argument("--seed", type=int, default=0, help="the seed, or the first of many")
    parser.add_argument("--count", type=int, default=1, help="how many seeds")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes")
    parser.add_argument(
        "--trap",
        choices=TRAPS,
        help="put a known mistake into the code; stop at the seed that shows it",
    )
    parser.add_argument("--trace", type=Path, help="write down what happened in a run of one seed")
    return parser


def _one(options: argparse.Namespace) -> int:
    settings = draw_settings(options.seed)
    print(settings)
    for fault in draw_faults(settings):
        print(f"  {fault}")
    result = run(options.seed)
    if options.trace:
        options.trace.write_text("\n".join(result.trace) + "\n", encoding="utf-8")
    print(describe(result))
    return 1 if result.violation else 0


def _hunt(options: argparse.Namespace) -> int:
    trap = TRAPS[options.trap]
    print(f"{trap.name}: {trap.what}")
    found = hunt(trap, range(options.seed, options.seed + options.count))
    print("nothing found" if found is None else describe(found[1]))
    return 0 if found is None else 1


def describe(result: Result) -> str:
    """Return the line that sums up a run."""
    verdict = (
        f"BROKEN: {result.violation}" if result.violation else "void" if result.is_void else "good"
    )
    return (
        f"seed {result.seed}: {verdict}; {result.simulated_s:.1f} s, "
        f"{result.faults.total()} faults, {result.published} events published, "
        f"{result.delivered} delivered, {result.holes} holes, "
        f"up to date in {result.healed_in_s:.2f} s, trace {result.trace_crc:08x}"
    )


def _many(options: argparse.Namespace) -> int:
    seeds = range(options.seed, options.seed + options.count)
    totals = Totals()
    for result in run_many(seeds, options.jobs):
        totals.add(result)
        if result.violation:
            print(draw_settings(result.seed), file=sys.stderr)
            print(describe(result), file=sys.stderr)
            print(
                f"  again: python -m sirius.testing.broadcast --seed {result.seed}", file=sys.stderr
            )
    print("\n".join(totals.lines()))
    return 1 if totals.violations else 0


if __name__ == "__main__":
    sys.exit(main())
