"""`waltool verify`"""

from __future__ import annotations

import click

from sirius.errors import CorruptFile
from sirius.wal import OsFileSystem
from sirius.wal.single import SingleFileReader
from sirius.wal.store import Store
from sirius.wal.verify.verify import Finding, Report, Severity, block_faults, verify
from waltool.command import command as _command
from waltool.command import log_argument
from waltool.output import Output
from waltool.progress import Progress
from waltool.source import AncestorSource, file_size, is_live, kind_of
from waltool.text import escape, plural, size

_STYLES = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}


@_command("waltool verify films", "waltool verify --deep --json films | jq 'select(.severity)'")
@click.option("--deep", is_flag=True, help="Check the checksum of every record too.")
@log_argument
def command(out: Output, log: str, deep: bool) -> int:
    """Check every byte of a log.

    Reads all of it: manifests, headers, blocks, marks, indexes, and what a crash may have left. Changes nothing, and
    may be run while a process writes to the log. Exits with 1 if an error was found; a torn tail is a warning, since
    it was never acknowledged.
    """
    with Progress("checking", 0, shown=out.shows_progress, unit="bytes") as bar:
        report = _check(log, deep, bar)
    for finding in report.findings:
        _show_finding(out, finding)
    _show_summary(out, report)
    return 0 if report.sound else 1


def _check(log: str, deep: bool, bar: Progress) -> Report:
    if kind_of(log) == "sirius":
        store = Store(OsFileSystem(), log)
        return verify(store, deep=deep, live=is_live(log), progress=bar.at)
    if kind_of(log) == "single":
        return _check_single(log, deep, bar)
    return _check_ancestor(AncestorSource(log), bar)


def _check_single(log: str, deep: bool, bar: Progress) -> Report:
    """Check a log in one file, up to the first damage."""
    report = Report(segments=1, bytes=file_size(log))
    try:
        with SingleFileReader(OsFileSystem(), log) as reader:
            for chunk in reader.chunks():
                report.blocks += len(chunk.spans)
                report.records += sum(header.records for _, header in chunk.spans)
                for at, what in block_faults(chunk, deep):
                    report.findings.append(Finding(Severity.ERROR, log, chunk.base + at, what))
                bar.at(chunk.base, report.bytes)
    except CorruptFile as error:
        report.findings.append(Finding(Severity.ERROR, log, error.offset, error.reason))
    return report


def _check_ancestor(source: AncestorSource, bar: Progress) -> Report:
    """Check a log of the Scala Sirius, whose entries all carry a checksum, up to the first damage."""
    segments = source.reader.segments()
    paths = [path for segment in segments for path in (segment.data_path, segment.index_path)]
    report = Report(segments=len(segments), bytes=sum(map(file_size, paths)))
    try:
        for columns in source.reader.batches():
            report.records += len(columns)
            bar.at(int(columns.seq[-1]), source.last)
        if source.reader.torn_tail is not None:
            path, offset = source.reader.torn_tail
            what = "a torn tail: the file ends within an entry"
            report.findings.append(_finding(source, Severity.WARNING, path, offset, what))
        source.reader.check_index()
    except CorruptFile as error:
        found = _finding(source, Severity.ERROR, error.path, error.offset, error.reason)
        report.findings.append(found)
    for path in source.reader.leftovers:
        report.findings.append(_finding(source, Severity.WARNING, path, None, "left by a crash"))
    return report


def _finding(
    source: AncestorSource, severity: Severity, path: str, offset: int | None, what: str
) -> Finding:
    return Finding(severity, path.removeprefix(f"{source.path}/"), offset, what)


def _show_finding(out: Output, finding: Finding) -> None:
    if out.as_json:
        out.object(
            {
                "severity": finding.severity,
                "file": finding.path,
                "offset": finding.offset,
                "what": finding.what,
            }
        )
        return
    place = "" if finding.offset is None else f": byte {finding.offset:,}"
    severity = out.paint(finding.severity, _STYLES[finding.severity])
    out.line(f"{severity}: {escape(finding.path)}{place}: {escape(finding.what)}")


def _show_summary(out: Output, report: Report) -> None:
    counts = {f"{severity}s": report.count(severity) for severity in Severity}
    if out.as_json:
        looked_at = {
            name: getattr(report, name) for name in ("segments", "blocks", "records", "bytes")
        }
        out.object({"sound": report.sound, **counts, **looked_at})
        return
    found = ", ".join(plural(n, str(s)) for s in Severity if (n := report.count(s))) or "clean"
    blocks = f"{plural(report.blocks, 'block')}, " if report.blocks else ""
    out.line(
        f"{plural(report.segments, 'segment')}, {blocks}{plural(report.records, 'record')}, "
        f"{size(report.bytes)}: {found}"
    )
