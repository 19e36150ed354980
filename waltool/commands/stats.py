"""`waltool stats`"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import click
import numpy as np

from sirius.wal import Op
from waltool.command import command as _command
from waltool.command import log_argument
from waltool.filters import Filter, filter_options
from waltool.keytable import Distinct
from waltool.output import Output, op_name, time_fields
from waltool.params import separator as _separator
from waltool.progress import progress
from waltool.source import Source, open_source
from waltool.tally import Histogram, Tally, top_prefixes
from waltool.text import escape, number, plural, size

_ROWS_MAX = 48
_BAR = 40
_PERIODS = {"hour": "h", "day": "D", "month": "M"}


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
    type=click.Choice(["auto", *_PERIODS]),
    default="auto",
    help="Count records over time by this; default: whatever fits on a page.",
)
@filter_options("first", "last", "since", "until", "key")
@log_argument
def command(out: Output, log: str, separator: str, top: int, per: str, wanted: Filter) -> None:
    """Count records, keys and bytes, and what compaction would save.

    Reads all records, or those that the options leave; bodies are checked and not decoded. A record's bytes are those
    of its entry, key and body. Memory grows with the number of keys. Changes nothing.
    """
    with open_source(log) as source:
        tally, first, last, holes = _scan(out, source, wanted)
    distinct = tally.finish()
    found = {
        "path": log,
        "first": first,
        "last": last,
        "records": int(tally.records.sum()),
        "holes": holes,
        "bytes": int(tally.bytes.sum()),
        "operations": _operations(tally),
        **_keys(distinct),
        "key_bytes": tally.key_bytes.summary(),
        "body_bytes": tally.body_bytes.summary(),
        "prefixes": [asdict(row) for row in top_prefixes(distinct, separator, top)],
        "over_time": _over_time(tally.hours, per),
    }
    if out.as_json:
        out.object(found)
    else:
        _show(out, found)


def _scan(out: Output, source: Source, wanted: Filter) -> tuple[Tally, int, int, int]:
    tally, holes = Tally(), 0
    wanted = replace(wanted, control=True)
    first, last = wanted.bounds(source)
    with progress(out, "reading", last - first + 1) as bar:
        for batch in bar.over(wanted.unfiltered(source), first):
            holes += batch.holes
            tally.add(wanted.apply(batch))
    return tally, first, last, holes


def _operations(tally: Tally) -> dict[str, dict[str, int]]:
    known = {int(op) for op in Op}
    ops = sorted(known | set(np.flatnonzero(tally.records).tolist()))
    return {
        op_name(op): {"records": int(tally.records[op]), "bytes": int(tally.bytes[op])}
        for op in ops
    }


def _keys(distinct: Distinct) -> dict[str, dict[str, int]]:
    live = int((distinct.op == Op.PUT).sum())
    return {
        "keys": {"distinct": len(distinct), "live": live, "deleted": len(distinct) - live},
        "superseded": {
            "records": int(distinct.updates.sum()) - len(distinct),
            "bytes": int(distinct.total_size.sum() - distinct.size.sum()),
        },
    }


def _over_time(hours: Histogram, per: str) -> dict[str, Any]:
    """Count records by the hour, the day or the month, in UTC; periods without any are left out."""
    times = hours.values.astype("datetime64[h]")
    for period, unit in _PERIODS.items():
        starts, places = np.unique(times.astype(f"datetime64[{unit}]"), return_inverse=True)
        if period == per or (per == "auto" and (len(starts) <= _ROWS_MAX or period == "month")):
            break
    counts = np.zeros(len(starts), np.int64)
    np.add.at(counts, places, hours.counts)
    begins = starts.astype("datetime64[us]").astype(np.int64).tolist()
    rows = zip(begins, counts.tolist(), strict=True)
    return {"per": period, "counts": [{**time_fields(t), "records": n} for t, n in rows]}


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
