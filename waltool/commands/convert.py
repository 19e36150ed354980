"""`waltool convert`"""

from __future__ import annotations

import click

from waltool.command import command as _command
from waltool.output import Output
from waltool.params import byte_count
from waltool.progress import progress
from waltool.source import open_source
from waltool.text import escape, number, plural
from waltool.transfer import KINDS, Kind, Target, Written, torn_tail, write


@_command(
    "waltool convert old-films films --to sirius",
    "waltool convert films films.sirius --to single",
    "waltool convert films back --to ancestor-segmented --truncate-times",
)
@click.argument("log", metavar="IN", type=click.Path())
@click.argument("target", metavar="OUT", type=click.Path())
@click.option("--to", "kind", type=click.Choice(KINDS), required=True, help="The format of OUT.")
@click.option(
    "--events-per-segment",
    type=click.IntRange(1),
    metavar="N",
    help="Begin a segment after so many records.",
)
@click.option(
    "--segment-bytes",
    type=byte_count,
    metavar="SIZE",
    help="Begin a segment before it grows beyond this, such as 64MiB. For --to sirius.",
)
@click.option(
    "--truncate-times", is_flag=True, help="Cut times to milliseconds, if OUT can hold no more."
)
@click.option(
    "--drop-control",
    is_flag=True,
    help="Leave membership entries out, if OUT has no place for them.",
)
def command(  # noqa: PLR0913 (an argument for each option)
    out: Output,
    log: str,
    target: str,
    kind: Kind,
    *,
    events_per_segment: int | None,
    segment_bytes: int | None,
    truncate_times: bool,
    drop_control: bool,
) -> None:
    """Write a log in another format.

    IN is a log of any kind and stays as it is. OUT must not be there yet; it appears when all of it is on disk.
    Sequence numbers, times, keys and bodies are kept, and what compaction removed stays removed.

    \b
    sirius              a folder, to append to
    single              one file, to keep or to send
    ancestor-segmented  a folder of the Scala Sirius, with the marker SEGMENTED-1.0
    ancestor-legacy     a folder of the Scala Sirius, with 1.data and 1.index

    Only the first has a tombstone floor, up to which deletes may be missing; else it is left out, and said. The formats
    of the Scala Sirius hold milliseconds, and neither control entries nor sessions. No-ops are left out, sessions too,
    and counted; for membership entries and for times that are finer you have to say so. Its segments and their flags
    are remembered by a Sirius log and come back on the way back, unless --events-per-segment is given.
    """
    wanted = Target(
        target.rstrip("/"), kind, events_per_segment, segment_bytes, drop_control, truncate_times
    )
    with open_source(log) as source:
        wanted = wanted.like(source)
        with progress(out, "converting", source.last) as bar:
            written = write(wanted, bar.over(source.batches(), 1))
        if torn := torn_tail(source):
            out.remark(f"{log}: left out a torn tail: {torn}")
    _show(out, target, wanted, written)


def _show(out: Output, target: str, wanted: Target, written: Written) -> None:
    floor = 0 if wanted.kind == "sirius" else wanted.tombstone_floor
    if out.as_json:
        counts = {"records": written.records, "last": written.last, **written.losses.as_json()}
        lost = {"tombstone_floor_dropped": floor}
        out.object({"target": target, "kind": wanted.kind, **counts, **lost})
        return
    out.line(f"{escape(target)}: {plural(written.records, 'record')}, up to {written.last:,}")
    losses = written.losses
    rows = (
        ("no-ops left out", losses.noops),
        ("membership entries left out", losses.control),
        ("sessions left out", losses.sessions),
        ("times cut to milliseconds", losses.times),
        ("tombstone floor left out", floor),
    )
    if shown := [(name, number(count)) for name, count in rows if count]:
        out.pairs(shown)
