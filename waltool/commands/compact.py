"""`waltool compact`"""

from __future__ import annotations

import os
from contextlib import nullcontext

import click

from sirius.errors import UsageError
from sirius.types import Seq
from sirius.wal import CompactionPolicy, Log, LogConfig
from sirius.wal.store import RESERVE
from waltool.command import command as _command
from waltool.command import log_argument
from waltool.compacting import Forecast, Outcome, Sums
from waltool.failures import INTERRUPTED
from waltool.output import Output
from waltool.params import byte_count, moment
from waltool.progress import Progress, progress
from waltool.renewal import Survey, into_new, survey
from waltool.source import SiriusSource, file_size, kind_of, open_source
from waltool.spark import Spark, engine_options
from waltool.text import escape, number, size
from waltool.timing import Stopwatch, duration, polite_interrupt

_CONFIG = LogConfig(background=False, reserve_bytes=0)


@_command(
    "waltool compact films",
    "waltool compact --dry-run --drop-deletes-older-than 30d films",
    "waltool compact old-films new-films",
)
@log_argument
@click.argument("target", metavar="[OUT]", required=False, type=click.Path())
@click.option(
    "--dead-fraction",
    type=click.FloatRange(0, 1),
    help="Rewrite a segment if at least this part of it is dead; default: 0.25. In place only.",
)
@click.option(
    "--drop-deletes",
    is_flag=True,
    help="Let deletes go too. Safe only when no follower lags behind: one that has missed a delete "
    "has to take the whole state anew.",
)
@click.option(
    "--drop-deletes-older-than",
    "drop_before",
    type=moment,
    metavar="AGE",
    help="Let deletes of this age go, such as 30d; the same caution applies.",
)
@click.option(
    "--rate", type=byte_count, metavar="SIZE", help="Read and write so much a second: 50MB."
)
@click.option("--dry-run", is_flag=True, help="Say what it would save, and change nothing.")
@click.option(
    "--keep-old",
    is_flag=True,
    help="Leave replaced files to readers of the log, and to copies of it being made.",
)
@engine_options
def command(  # noqa: PLR0913 (an argument for each option)
    out: Output,
    log: str,
    target: str | None,
    *,
    dead_fraction: float | None,
    drop_deletes: bool,
    drop_before: int | None,
    rate: int | None,
    dry_run: bool,
    keep_old: bool,
    spark: Spark | None,
) -> int:
    """Keep the newest record of each key only.

    In place, if there is no OUT: the log must not be open for writing. Segments of which enough is dead are rewritten
    one after the other, and replaced files are removed at the end, so do not copy the folder meanwhile, or give
    --keep-old. Ctrl-C stops between two segments; what is done stays.

    With OUT, into a new log of the same format, which may also be one of the Scala Sirius; LOG stays as it is. OUT
    holds no journal: compact a member of a cluster in place.

    With OUT and --engine spark, Spark finds out what is live; the new log is the same to the byte.

    A deleted key needs its DELETE as long as a follower may have to be told; so deletes stay unless you let them go.
    In place, a DELETE goes one run after the value that it deleted.
    """
    watch = Stopwatch()
    if target is not None and dead_fraction is not None:
        raise UsageError("--dead-fraction is for a log in place: a new one has nothing dead in it")
    if spark is not None and (target is None or rate is not None):
        raise UsageError("--engine spark writes a new log at full speed: give OUT, and no --rate")
    policy = CompactionPolicy(
        dead_fraction_min=0.25 if dead_fraction is None else dead_fraction,
        drop_deletes_before_us=drop_before,
        drop_deletes_upto=Seq((1 << 63) - 1 if drop_deletes or drop_before else 0),
        rate_bytes_per_s=rate,
    )
    if target is not None:
        target = target.rstrip("/")
        with nullcontext(survey) if spark is None else spark.survey() as surveying:
            outcome = _into_new(out, log, target, policy, surveying, dry_run=dry_run)
    elif kind_of(log) != "sirius":
        raise UsageError(f"{log} is not the folder of a Sirius log: give OUT, a new log to write")
    elif dry_run:
        outcome = _forecast(out, log, policy)
    else:
        outcome = _in_place(out, log, policy, keep_old=keep_old)
    _show(out, log, target, outcome, watch.seconds, dry_run=dry_run)
    return INTERRUPTED if outcome.stopped else 1 if outcome.damaged else 0


def _in_place(out: Output, path: str, policy: CompactionPolicy, *, keep_old: bool) -> Outcome:
    bar = Progress("compacting", 0, shown=out.shows_progress, unit="bytes")
    with Log.open(path, _CONFIG) as log, polite_interrupt() as stop, bar:
        _lend_reserve(out, path)
        log.rotate()
        before = _sums(log)
        result = log.compact(policy, should_stop=stop, on_progress=bar.at)
        if not keep_old:
            log.retire(at_once=True)
        return Outcome(
            before,
            _sums(log),
            deletes_dropped=result.deletes_dropped,
            bytes_written=result.bytes_written,
            tombstone_floor=result.tombstone_floor,
            damaged=tuple(map(int, result.damaged)),
            stopped=result.stopped,
        )


def _lend_reserve(out: Output, path: str) -> None:
    """On a full disk, give back the room that is kept aside for this; the log's next writer takes it again."""
    reserve = f"{path}/{RESERVE}"
    disk = os.statvfs(path)
    if disk.f_bavail * disk.f_frsize < file_size(reserve):
        os.remove(reserve)
        out.remark(f"the disk is full: {reserve} was given back")


def _sums(log: Log) -> Sums:
    """Sum up the log apart from its active segment, which is empty."""
    infos = log.manifest.segments[:-1]
    return Sums(len(infos), sum(info.records for info in infos), sum(info.bytes for info in infos))


def _forecast(out: Output, path: str, policy: CompactionPolicy) -> Outcome:
    with SiriusSource(path) as source, progress(out, "looking", source.last) as bar:
        forecast = Forecast(source, policy)
        for _ in bar.over(forecast.batches(), 1):
            pass
        return forecast.outcome()


def _into_new(
    out: Output,
    path: str,
    target: str,
    policy: CompactionPolicy,
    surveying: Survey,
    *,
    dry_run: bool,
) -> Outcome:
    with open_source(path) as source, progress(out, "compacting", 2 * source.last) as bar:
        return into_new(source, target, policy, bar, survey=surveying, dry_run=dry_run)


def _show(
    out: Output, log: str, target: str | None, done: Outcome, seconds: float, *, dry_run: bool
) -> None:
    if out.as_json:
        head = {"log": log, "target": target, "dry_run": dry_run}
        out.object({**head, **done.as_json(), "seconds": seconds})
        return
    state = "would be compacted" if dry_run else "stopped" if done.stopped else "compacted"
    out.line(f"{escape(log)}: {state}{f' into {escape(target)}' if target else ''}")
    about = "about " if dry_run else ""
    factor = f", {done.amplification} bytes a byte freed" if done.amplification else ""
    out.pairs(
        [
            ("segments", f"{done.before.segments:,} -> {done.after.segments:,}"),
            ("records", f"{done.before.records:,} -> {done.after.records:,}"),
            ("on disk", f"{size(done.before.bytes)} -> {about}{size(done.after.bytes)}"),
            ("freed", f"{about}{size(max(done.bytes_freed, 0))}"),
            ("written", f"{about}{size(done.bytes_written)}{factor}"),
            ("deletes dropped", number(done.deletes_dropped)),
            ("tombstone floor", number(done.tombstone_floor)),
            ("time", duration(seconds)),
        ]
    )
    for segment in done.damaged:
        what = f"segment {segment} is damaged and was set apart; see waltool repair"
        out.line(out.paint(what, "red"))
