"""`waltool stats`"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from waltool.command import command as _command
from waltool.command import log_argument
from waltool.filters import Filter, filter_options
from waltool.output import Output
from waltool.params import separator as _separator
from waltool.progress import progress
from waltool.source import Source, open_source
from waltool.spark import Spark, engine_options
from waltool.summary import PERIODS, Counted
from waltool.tally import KeySums, Tally, top_prefixes
from waltool.text import escape, number, plural, size

_BAR = 40


@_command("waltool stats films", "waltool stats --since 7d --prefix-separator : --top 3 films")
@click.option(
    "--prefix-separator",
    "separator",
    type=_separator,
    default="/",
    help="What ends the prefix of a key; default: /",
)
@click.option("--top", type=click.IntRange(0), default=10, help="How many prefixes; default: 10.")
@click.option(
    "--per",
    type=click.Choice(["auto", *PERIODS]),
    default="auto",
    help="Count records over time by this; default: whatever fits on a page.",
)
@engine_options
@filter_options("first", "last", "since", "until", "key")
@log_argument
def command(
    out: Output,
    log: str,
    *,
    separator: str,
    top: int,
    per: str,
    wanted: Filter,
    spark: Spark | None,
) -> None:
    """Count records, keys and bytes, and what compaction would save.

    Reads all records, or those that the options leave; bodies are checked and not decoded. A record's bytes are those
    of its entry, key and body. Memory grows with the number of keys. Changes nothing.
    """
    if spark is None:
        with open_source(log) as source:
            counted = _count(out, source, replace(wanted, control=True), separator, top)
    else:
        counted = spark.count(log, separator, top, wanted)
    found = counted.summary(log, per)
    if out.as_json:
        out.object(found)
    else:
        _show(out, found)


def _count(out: Output, source: Source, wanted: Filter, separator: str, top: int) -> Counted:
    tally, holes = Tally(), 0
    first, last = wanted.bounds(source)
    with progress(out, "reading", last - first + 1) as bar:
        for batch in bar.over(wanted.unfiltered(source), first):
            holes += batch.holes
            tally.add(wanted.apply(batch))
    distinct = tally.finish()
    prefixes = top_prefixes(distinct, separator, top)
    return Counted(first, last, holes, tally.sums, KeySums.of(distinct), prefixes)


def _show(out: Output, found: dict[str, Any]) -> None:
    _show_sums(out, found)
    _show_operations(out, found)
    _show_sizes(out, found)
    _show_prefixes(out, found)
    _show_times(out, found["over_time"])


def _show_sums(out: Output, found: dict[str, Any]) -> None:
    keys, dead, total = found["keys"], found["superseded"], found["bytes"]
    share = f", {dead['bytes'] / total:.0%}" if total else ""
    saved = f"{plural(dead['records'], 'record')}, {size(dead['bytes'])}{share}"
    states = f"{number(keys['live'])} live, {number(keys['deleted'])} deleted"
    span = f"{found['first']:,} to {found['last']:,}" if found["last"] else "no records"
    out.line(out.paint(f"{escape(found['path'])}: {span}", "bold"))
    out.pairs(
        [
            ("records", f"{number(found['records'])}, {plural(found['holes'], 'hole')}"),
            ("bytes", size(total)),
            ("keys", f"{number(keys['distinct'])}: {states}"),
            ("superseded", f"{saved}: what compaction would save"),
        ]
    )


def _show_operations(out: Output, found: dict[str, Any]) -> None:
    rows = [
        (name, number(sums["records"]), size(sums["bytes"]))
        for name, sums in found["operations"].items()
        if sums["records"]
    ]
    if rows:
        out.line()
        out.table(("operation", "records", "bytes"), rows, left="operation")


def _show_sizes(out: Output, found: dict[str, Any]) -> None:
    if found["key_bytes"]["max"] is None:
        return
    heads = tuple(found["key_bytes"])
    rows = []
    for name, field in (("keys", "key_bytes"), ("bodies of puts", "body_bytes")):
        values = found[field].values()
        rows.append((name, *("-" if value is None else f"{value:,}" for value in values)))
    out.line()
    out.table(("bytes", *heads), rows, left="bytes")


def _show_prefixes(out: Output, found: dict[str, Any]) -> None:
    rows = [
        (
            "(no separator)" if row["prefix"] is None else escape(row["prefix"]),
            *(number(row[name]) for name in ("keys", "live", "records")),
            size(row["bytes"]),
        )
        for row in found["prefixes"]
    ]
    if rows:
        out.line()
        out.table(("prefix", "keys", "live", "records", "bytes"), rows, left="prefix")


def _show_times(out: Output, over_time: dict[str, Any]) -> None:
    counts = [(row["time"], row["records"]) for row in over_time["counts"]]
    if not counts:
        return
    digits = {"hour": 16, "day": 10, "month": 7}[over_time["per"]]
    most = max(records for _, records in counts)
    rows = [
        (time[:digits], number(records), "#" * max(records * _BAR // most, 1))
        for time, records in counts
    ]
    out.line()
    out.table((over_time["per"], "records", "UTC"), rows, left=f"{over_time['per']} UTC")
