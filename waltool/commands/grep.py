"""`waltool grep`"""

from __future__ import annotations

import re

import click

from sirius.errors import UsageError
from sirius.wal import Batch
from waltool.command import command as _command
from waltool.command import log_argument, record_options
from waltool.filters import Filter, filter_options
from waltool.matching import Matcher
from waltool.output import Output
from waltool.params import regex
from waltool.progress import progress
from waltool.source import Source, open_source
from waltool.target import Copier, new_log
from waltool.text import plural


@_command(
    "waltool grep '^title/.*blanca' films",
    "waltool grep -v --body -c '\"year\": 19' films",
    "waltool grep '^title/' -o titles films",
)
@click.argument("pattern", metavar="REGEX", type=regex)
@click.option("-v", "--invert", is_flag=True, help="Records that do not match.")
@click.option(
    "-i", "--ignore-case", is_flag=True, help="Do not tell capital letters from small ones."
)
@click.option("--body", "in_body", is_flag=True, help="Search bodies, as bytes, instead of keys.")
@click.option("-c", "--count", is_flag=True, help="Show only how many records match.")
@click.option(
    "-o",
    "--output",
    "target",
    type=click.Path(),
    help="Write the matching records as a new log in this folder, with their sequence numbers.",
)
@filter_options()
@record_options
@log_argument
def command(  # noqa: PLR0913 (an argument for each option)
    out: Output,
    pattern: str,
    log: str,
    *,
    invert: bool,
    ignore_case: bool,
    in_body: bool,
    count: bool,
    target: str | None,
    wanted: Filter,
) -> int:
    """Show the records whose key or body matches a regular expression.

    Reads the whole log, or the part that --first, --last, --since and --until leave. The expression is one of Python's
    and may match anywhere. Changes nothing; -o writes a new log, in which all other records are holes. Exits with 1 if
    no record matches.
    """
    search = Search(_matcher(pattern, ignore_case, in_body), in_body, invert, wanted)
    with open_source(log) as source:
        out.seq_width = len(str(source.last))
        if target is not None:
            found = _copy(out, source, search, target)
        else:
            found = _show(out, source, search, only_count=count)
    if target is None and count:
        out.object({"records": found}) if out.as_json else out.line(str(found))
    return 0 if found else 1


class Search:
    """What is looked for, and where."""

    def __init__(self, matcher: Matcher, in_body: bool, invert: bool, wanted: Filter) -> None:
        self._matcher = matcher
        self._in_body = in_body
        self._invert = invert
        self.wanted = wanted

    def apply(self, batch: Batch) -> Batch:
        batch = self.wanted.apply(batch)
        mask = self._matcher.mask(batch.body_column if self._in_body else batch.key_column)
        return batch.where(~mask if self._invert else mask)


def _matcher(pattern: str, ignore_case: bool, in_body: bool) -> Matcher:
    compiled = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    if not in_body:
        return Matcher.of_text(compiled)
    try:
        return Matcher.of_bytes(compiled)
    except (re.error, ValueError) as error:
        raise UsageError(f"the expression cannot be searched for in bytes: {error}") from None


def _show(out: Output, source: Source, search: Search, *, only_count: bool) -> int:
    found = 0
    first, last = search.wanted.bounds(source)
    with progress(out, "searching", last - first + 1, beside_records=not only_count) as bar:
        for batch in bar.over(search.wanted.unfiltered(source), first):
            matching = search.apply(batch)
            found += len(matching)
            if not only_count and len(matching):
                out.records(matching)
    return found


def _copy(out: Output, source: Source, search: Search, target: str) -> int:
    """Write the matching records as a new log that covers all that was looked at, from 1 on."""
    first, last = search.wanted.bounds(source)
    records = 0
    with new_log(target) as log, progress(out, "copying", last - first + 1) as bar:
        copier = Copier(log)
        for batch in bar.over(search.wanted.unfiltered(source), first):
            records += len(batch)
            copier.add(search.apply(batch))
        covered = min(source.last, search.wanted.last or source.last)
        copier.finish(covered)
    summary = {"target": target, "records": copier.records, "of": records, "last": covered}
    if out.as_json:
        out.object(summary)
    else:
        out.line(f"{target}: {plural(copier.records, 'record')} of {records:,}, up to {covered:,}")
    return copier.records
