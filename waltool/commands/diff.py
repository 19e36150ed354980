"""`waltool diff`"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import click

from sirius.wal import Difference, diff
from sirius.wal.state import Side
from waltool.command import command as _command
from waltool.output import Output
from waltool.progress import progress
from waltool.source import open_source
from waltool.spark import Spark, engine_options
from waltool.states import counting, state_of
from waltool.text import escape, plural

_SIGNS = {Side.LEFT: "-", Side.RIGHT: "+", Side.BOTH: "!"}
_STYLES = {Side.LEFT: "red", Side.RIGHT: "green", Side.BOTH: "yellow"}
_NAMES = {Side.LEFT: "a", Side.RIGHT: "b", Side.BOTH: "both"}


@_command("waltool diff films backup", "waltool diff --keys-only --limit 20 films films.sirius")
@click.argument("left", metavar="A", type=click.Path())
@click.argument("right", metavar="B", type=click.Path())
@click.option("--limit", type=click.IntRange(0), metavar="N", help="Show no more keys than this.")
@click.option("--keys-only", is_flag=True, help="Show keys alone, one a line.")
@engine_options
def command(
    out: Output,
    left: str,
    right: str,
    *,
    limit: int | None,
    keys_only: bool,
    spark: Spark | None,
) -> int:
    """Show the keys in which two logs differ.

    Compares what the logs stand for, the newest value of every key, and not how they came there: sequence numbers,
    times, older values and formats do not count. "-" is a key that only A has, "+" one that only B has, "!" one that
    has another value in each; the sequence numbers are those of the values. Exits with 1 if there is any.
    """
    counts: Counter[Side] = Counter()
    found_by = _compare(out, left, right) if spark is None else spark.diff(left, right)
    for found in found_by:
        counts[found.side] += 1
        if limit is None or counts.total() <= limit:
            _show(out, found, keys_only)
    _sum_up(out, counts, limit, keys_only)
    return 1 if counts else 0


def _compare(out: Output, left: str, right: str) -> Iterator[Difference]:
    with (
        open_source(left) as a,
        open_source(right) as b,
        progress(out, "comparing", a.last + b.last, beside_records=True) as bar,
    ):
        yield from diff(state_of(a), state_of(b), progress=counting(bar))


def _show(out: Output, found: Difference, keys_only: bool) -> None:
    if out.as_json:
        out.object(_object(found, keys_only))
    elif keys_only:
        out.line(escape(found.key))
    else:
        seqs = [f"{name} {seq}" for name, seq in _seqs(found) if seq is not None]
        sign = out.paint(_SIGNS[found.side], _STYLES[found.side])
        out.line(f"{sign} {escape(found.key)}  ({', '.join(seqs)})")


def _seqs(found: Difference) -> tuple[tuple[str, int | None], tuple[str, int | None]]:
    return ("A", found.left_seq), ("B", found.right_seq)


def _object(found: Difference, keys_only: bool) -> dict[str, Any]:
    if keys_only:
        return {"key": found.key}
    seqs = {"a_seq": found.left_seq, "b_seq": found.right_seq}
    return {"key": found.key, "in": _NAMES[found.side], **seqs}


def _sum_up(out: Output, counts: Counter[Side], limit: int | None, keys_only: bool) -> None:
    total = counts.total()
    if out.as_json:
        sides = {"only_a": Side.LEFT, "only_b": Side.RIGHT, "other_value": Side.BOTH}
        summary = {name: counts[side] for name, side in sides.items()}
        out.object({"differ": total > 0, "keys": total, **summary})
    elif not keys_only:
        hidden = total - min(total, total if limit is None else limit)
        rest = f", {hidden:,} not shown" if hidden else ""
        parts = f"{counts[Side.LEFT]:,} only in A, {counts[Side.RIGHT]:,} only in B"
        other = f"{counts[Side.BOTH]:,} with another value"
        same = "the same state"
        out.line(f"{plural(total, 'key')}: {parts}, {other}{rest}" if total else same)
