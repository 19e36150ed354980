"""`waltool digest`"""

from __future__ import annotations

from typing import Any

import click

from sirius.errors import UsageError
from sirius.wal import StateDigest, state_digest
from sirius.wal.state import RangeDigest
from waltool.command import command as _command
from waltool.command import log_argument
from waltool.output import Output
from waltool.progress import progress
from waltool.source import open_source
from waltool.states import counting, state_of
from waltool.text import number, plural

_RANGES_MAX = 65_536


@_command("waltool digest films", "waltool digest --json --ranges 16 --prefix title/ films")
@click.option(
    "--ranges",
    type=int,
    metavar="N",
    help="Show the digests of so many ranges of keys, too: a power of two, up to 65536.",
)
@click.option("--prefix", default="", help="Only keys that begin with this.")
@log_argument
def command(out: Output, log: str, ranges: int | None, prefix: str) -> None:
    """Sum up a log's state in one number, to compare it with another.

    Two logs have the same digest if the same keys have the same values, whatever their format, and whatever became of
    sequence numbers, times and older values. With --ranges, keys are spread by their checksum, so that two logs that
    differ can be told apart where they do. Reads the log twice and changes nothing.
    """
    if ranges is not None and (not 1 <= ranges <= _RANGES_MAX or ranges & (ranges - 1)):
        raise UsageError(f"--ranges is a power of two, up to {_RANGES_MAX}, and not {ranges}")
    with open_source(log) as source, progress(out, "summing up", source.last) as bar:
        state = state_of(source)
        digest = state_digest(state, ranges or 1, prefix=prefix, progress=counting(bar))
    _show(out, digest, ranges)


def _show(out: Output, digest: StateDigest, ranges: int | None) -> None:
    parts = list(enumerate(digest.ranges)) if ranges else []
    if out.as_json:
        rows = [_range_object(at, part) for at, part in parts]
        listed: dict[str, Any] = {"ranges": rows} if ranges else {}
        out.object({"digest": digest.hex, "keys": digest.total.keys, **listed})
        return
    out.line(f"{digest.hex}  {plural(digest.total.keys, 'key')}")
    if parts:
        out.line()
        rows_ = [(str(at), f"{part.value:032x}", number(part.keys)) for at, part in parts]
        out.table(("range", "digest", "keys"), rows_, left="digest")


def _range_object(at: int, part: RangeDigest) -> dict[str, Any]:
    return {"range": at, "digest": f"{part.value:032x}", "keys": part.keys}
