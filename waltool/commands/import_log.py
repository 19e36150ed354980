"""`waltool import`"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import click

from sirius.errors import SiriusError
from sirius.wal import Log
from waltool.command import command as _command
from waltool.exporting import FORMATS, format_of
from waltool.failures import complain
from waltool.importing import BadRow, Builder, parse, rows_of
from waltool.output import Output
from waltool.progress import Progress
from waltool.source import file_size
from waltool.target import new_log
from waltool.text import escape, plural

_BAD_MAX = 10


class BadRows(SiriusError):
    """A file with rows that cannot be taken."""


@_command(
    "waltool import films.jsonl films",
    "waltool export films | waltool import - copy",
    "waltool import --format csv films.txt films",
)
@click.argument("file", type=click.Path())
@click.argument("target", metavar="OUT", type=click.Path())
@click.option(
    "--format",
    "wanted",
    type=click.Choice(FORMATS),
    help="Default: as the file's name says, and jsonl in a pipe (-).",
)
def command(out: Output, file: str, target: str, wanted: str | None) -> None:
    """Make a log of JSON lines, CSV or Parquet.

    A row needs a key. It may have op (put if missing), body or body_base64, time (ISO 8601) or ts_us (microseconds; now
    if missing), session and serial. Sequence numbers are taken from seq, which must increase: numbers left out become
    holes. Without seq, rows are numbered from 1 on. Other fields are refused.

    OUT must not be there yet. If a row is bad, the line and what was expected are shown, for the first ten such rows,
    and no log is made.
    """
    format_ = format_of(file, wanted)
    now_us = time.time_ns() // 1000
    builder = Builder(lambda: now_us)
    with _opened(file) as stream, new_log(target) as log:
        bar = Progress("importing", file_size(file), shown=out.shows_progress, unit="bytes")
        with bar:
            bad = list(_fill(log, builder, format_, stream, bar))
        if bad:
            _tell(out, file, "row" if format_ == "parquet" else "line", bad)
            more = " or more" if len(bad) == _BAD_MAX else ""
            raise BadRows(f"{file}: {plural(len(bad), 'bad row')}{more}; nothing was imported")
    _show(out, target, builder)


def _fill(
    log: Log, builder: Builder, format_: str, stream: BinaryIO, bar: Progress
) -> Iterator[tuple[int, str]]:
    """Append the rows of a file; yield those that are bad, of which one is enough to undo it all."""
    bad, octets = 0, 0
    for number, fields in rows_of(format_, stream):
        try:
            row = parse(fields)
            octets += len(row.update.key) + len(row.update.body)
            for block in builder.add(row):
                log.append(block)
                bar.at(octets)
        except BadRow as error:
            yield number, str(error)
            bad += 1
            if bad == _BAD_MAX:
                return
    for block in builder.finish():
        log.append(block)


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        yield sys.stdin.buffer
    else:
        with open(file, "rb") as stream:
            yield stream


def _tell(out: Output, file: str, what: str, bad: list[tuple[int, str]]) -> None:
    for number, reason in bad:
        if out.as_json:
            out.object({"file": file, what: number, "what": reason})
        else:
            complain(f"{file}: {what} {number}: {reason}")


def _show(out: Output, target: str, builder: Builder) -> None:
    if out.as_json:
        out.object({"target": target, "records": builder.records, "last": builder.last})
    else:
        up_to = f", up to {builder.last:,}" if builder.last else ""
        out.line(f"{escape(target)}: {plural(builder.records, 'record')}{up_to}")
