"""`python -m sirius.testing.simulator --seed 17`: run seeds, and say what they broke.

`--count 50000 --ledger DIR` can be stopped, and goes on where it stopped when it is called again.
`--trap 5 --count 3000` puts a known mistake into the code and stops at the first seed that shows it.

Exits with 0 if everything held, 1 if a promise was broken, 2 on wrong usage.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from sirius.testing.simulator.faults import Fault
from sirius.testing.simulator.ledger import Ledger
from sirius.testing.simulator.many import Totals, run_many, with_progress
from sirius.testing.simulator.minimise import minimise
from sirius.testing.simulator.settings import draw_settings
from sirius.testing.simulator.simulation import Result, run
from sirius.testing.simulator.swarm import draw_schedule
from sirius.testing.simulator.traps import TRAPS, hunt


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return the exit code."""
    options = _parser().parse_args(arguments)
    logging.getLogger("sirius.wal").setLevel(logging.CRITICAL + 1)
    if options.trap:
        return _trap(options)
    if options.count == 1:
        return _one(options)
    return _many(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sirius.testing.simulator", description="Try to break consensus."
    )
    parser.add_argument("--seed", type=int, default=0, help="the seed, or the first of many")
    parser.add_argument("--count", type=int, default=1, help="how many seeds")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes")
    parser.add_argument("--trace", type=Path, help="write down what happened in a run of one seed")
    parser.add_argument(
        "--minimise", action="store_true", help="look for fewer faults that break the same promise"
    )
    parser.add_argument("--trap", choices=TRAPS, help="put a known mistake in, and look for it")
    parser.add_argument(
        "--ledger",
        type=Path,
        metavar="DIR",
        help="keep the results of many seeds in this folder, and do not run again what is in it",
    )
    parser.add_argument("--json", action="store_true", help="results as JSON")
    return parser


# ---------------------------------------------------------------------- one seed


def _one(options: argparse.Namespace) -> int:
    settings = draw_settings(options.seed)
    schedule = draw_schedule(settings)
    if not options.json:
        print(settings)
        _show(schedule)
    result = run(options.seed, schedule)
    if options.trace:
        options.trace.write_text("\n".join(result.trace) + "\n", encoding="utf-8")
    if options.json:
        print(json.dumps(Totals.of([result]).as_json()))
    else:
        print(describe(result))
    return _explain(result, minimised=options.minimise and not options.json)


def _show(schedule: Sequence[Fault]) -> None:
    for fault in schedule:
        print(f"  {fault}")


def describe(result: Result) -> str:
    """Return the line that sums up a run."""
    verdict = "BROKEN" if result.violation else "void" if result.is_void else "good"
    return (
        f"seed {result.seed}: {verdict}; {result.simulated_s:.1f} s, "
        f"{result.faults.total()} faults, {result.acknowledged} writes acknowledged "
        f"({result.writes_per_s:.0f}/s), {result.unknown} requests unknown, {result.rejected} rejected, "
        f"{result.reads} reads, {result.slots} slots, {result.reigns} reigns, "
        f"{result.configurations} configurations, trace {result.trace_crc:08x}"
    )


def _explain(result: Result, *, minimised: bool) -> int:
    if not result.violation:
        return 0
    print(f"  {result.violation}", file=sys.stderr)
    print(f"  again: make sim SEED={result.seed} TRACE=trace.txt", file=sys.stderr)
    if minimised:
        fewer = minimise(result.seed)
        print(f"these {len(fewer)} faults are enough:")
        _show(fewer)
    return 1


# ---------------------------------------------------------------------- many seeds


def _many(options: argparse.Namespace) -> int:
    seeds = range(options.seed, options.seed + options.count)
    totals = Totals.of(_told(_results(seeds, options)))
    if options.json:
        print(json.dumps(totals.as_json()))
    else:
        print("\n".join(totals.lines()))
        if totals.void:
            print(f"void: {' '.join(map(str, totals.void))}")
    for result in totals.violations if options.minimise else []:
        print(f"seed {result.seed}: these faults are enough:", file=sys.stderr)
        _show(minimise(result.seed))
    return 1 if totals.violations else 0


def _results(seeds: range, options: argparse.Namespace) -> Iterator[Result]:
    """Run the seeds, those alone that are not in the ledger if there is one."""
    if options.ledger is None:
        yield from _run(seeds, options.jobs)
        return
    ledger = Ledger(options.ledger)
    known = [ledger.results[seed] for seed in seeds if seed in ledger.results]
    broken = sum(result.violation is not None for result in known)
    print(
        f"{len(known):,} seeds of this code ({ledger.path.stem}) are in the ledger, {broken} broken",
        file=sys.stderr,
    )
    yield from known
    yield from ledger.kept(_run(ledger.left(seeds), options.jobs, broken))


def _run(seeds: Sequence[int], jobs: int, broken: int = 0) -> Iterator[Result]:
    say = partial(print, file=sys.stderr)
    return with_progress(run_many(seeds, jobs), len(seeds), say, broken=broken)


def _told(results: Iterator[Result]) -> Iterator[Result]:
    """Tell of broken promises as soon as they are found."""
    for result in results:
        if result.violation:
            print(describe(result), file=sys.stderr)
            _explain(result, minimised=False)
        yield result


# ---------------------------------------------------------------------- a bug that is put in


def _trap(options: argparse.Namespace) -> int:
    trap = TRAPS[options.trap]
    print(f"trap {trap.number}, {trap.name}: {trap.what}")
    catch = hunt(trap, range(options.seed, options.seed + options.count))
    if catch is None:
        print(f"not found in {options.count} seeds")
        return 0
    print(f"found after {catch.seeds} seeds: {describe(catch.result)}")
    print(f"  {catch.result.violation}")
    if options.trace:
        options.trace.write_text("\n".join(catch.result.trace) + "\n", encoding="utf-8")
    return 1


if __name__ == "__main__":
    sys.exit(main())
