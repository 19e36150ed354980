"""`waltool export`"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import click

from sirius.errors import UsageError
from waltool.command import command as _command
from waltool.command import log_argument
from waltool.exporting import FORMATS, format_of, writing
from waltool.filters import Filter, filter_options
from waltool.output import Output
from waltool.progress import progress
from waltool.source import open_source
from waltool.spark import Spark, engine_options
from waltool.target import new_file
from waltool.text import escape, plural


@_command(
    "waltool export films > films.jsonl",
    "waltool export -o films.parquet --since 7d films",
    "waltool export --format csv --key '^title/' films | head",
)
@click.option(
    "-o", "--output", "target", type=click.Path(), default="-", help="A new file; default: a pipe."
)
@click.option(
    "--format",
    "wanted_format",
    type=click.Choice(FORMATS),
    help="Default: as the file's name says, and jsonl in a pipe.",
)
@engine_options
@filter_options()
@log_argument
def command(
    out: Output,
    log: str,
    *,
    target: str,
    wanted_format: str | None,
    wanted: Filter,
    spark: Spark | None,
) -> None:
    """Write records as JSON lines, CSV or Parquet.

    All fields are kept: sequence number, time in microseconds, operation, key, body, session and serial. A body that is
    not UTF-8 is written in base64, except to Parquet, which has bytes. Control entries are left out unless --control is
    given. Reads the log, or the part that the options leave, and changes nothing; the file appears when all of it is
    on disk. Parquet needs pyarrow: pip install 'sirius-log[parquet]'. With --engine spark it is a
    folder of Parquet files.
    """
    format_ = format_of(target, wanted_format)
    if spark is None:
        records = _export(out, log, target, format_, wanted)
    elif target == "-" or format_ != "parquet":
        raise UsageError("--engine spark writes a folder of Parquet files: give -o NAME.parquet")
    else:
        records = spark.export(log, target, wanted)
    if target != "-":
        _show(out, target, format_, records)


def _export(out: Output, log: str, target: str, format_: str, wanted: Filter) -> int:
    records = 0
    if target == "-" and out.to_terminal and format_ != "jsonl":
        raise UsageError(
            f"{format_} is not for a terminal, since it has bytes as they are; give -o"
        )
    with open_source(log) as source, _opened(out, target) as stream:
        first, last = wanted.bounds(source)
        bar = progress(out, "exporting", last - first + 1, beside_records=target == "-")
        with bar, writing(format_, stream) as writer:
            for batch in bar.over(wanted.batches(source), first):
                writer.write(batch)
                records += len(batch)
    return records


@contextmanager
def _opened(out: Output, target: str) -> Iterator[BinaryIO]:
    if target == "-":
        out.flush()
        yield out.stream.buffer
        out.stream.buffer.flush()
    else:
        with new_file(target) as stream:
            yield stream


def _show(out: Output, target: str, format_: str, records: int) -> None:
    if out.as_json:
        out.object({"target": target, "format": format_, "records": records})
    else:
        out.line(f"{escape(target)}: {plural(records, 'record')}, {format_}")
