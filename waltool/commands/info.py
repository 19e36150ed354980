"""`waltool info`"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from sirius.wal import SegmentInfo, State
from sirius.wal.index import IndexTable
from sirius.wal.segment import DATA, INDEX, load_index
from waltool.command import command as _command
from waltool.command import log_argument
from waltool.output import Output, time_fields
from waltool.source import (
    AncestorSource,
    SingleSource,
    SiriusSource,
    Source,
    file_size,
    is_live,
    open_source,
)
from waltool.text import escape, iso, number, plural, size


@_command("waltool info films", "waltool info --json films | jq .last")
@log_argument
def command(out: Output, log: str) -> None:
    """Show what a log is made of.

    Reads the manifest and the indexes, and of the data only what is too new to be in an index. Changes nothing, takes
    no lock, and may be run while a process writes to the log.
    """
    with open_source(log) as source:
        found = describe(source)
    if out.as_json:
        out.object(found)
    else:
        _show(out, found)


def describe(source: Source) -> dict[str, Any]:
    """Return everything that is known of a log without reading its data."""
    if isinstance(source, SiriusSource):
        return _describe_sirius(source)
    if isinstance(source, AncestorSource):
        return _describe_ancestor(source)
    if isinstance(source, SingleSource):
        return _describe_single(source)
    raise NotImplementedError(source.kind)


@dataclass(frozen=True, slots=True)
class Part:
    """One segment. What is not known is None."""

    id: int
    first: int | None
    last: int | None
    records: int | None
    bytes: int
    state: str
    oldest_us: int | None = None
    newest_us: int | None = None

    @property
    def holes(self) -> int | None:
        if self.first is None or self.last is None or self.records is None:
            return None
        return self.last - self.first + 1 - self.records

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "first": self.first,
            "last": self.last,
            "records": self.records,
            "holes": self.holes,
            "bytes": self.bytes,
            "state": self.state,
        }


def _describe_sirius(source: SiriusSource) -> dict[str, Any]:
    manifest, torn = source.reader.manifest, source.reader.torn
    parts = [_sirius_part(source, info) for info in manifest.segments]
    damaged = parts[-1].state != State.ACTIVE
    return {
        **_common(source, parts),
        "live": is_live(source.path),
        "manifest_version": manifest.version,
        "tombstone_floor": manifest.tombstone_floor,
        "torn_tail": None if damaged else torn,
        "damage": torn if damaged else None,
    }


def _sirius_part(source: SiriusSource, info: SegmentInfo) -> Part:
    folder = source.store.segment_dir(info.id)
    on_disk = file_size(f"{folder}/{DATA}") + file_size(f"{folder}/{INDEX}")
    if info.state == State.QUARANTINED:
        return Part(info.id, info.first, info.last, None, on_disk, "quarantined")
    if info.state != State.ACTIVE:
        times = _times(_sealed_index(source, info))
        return Part(info.id, info.first, info.last, info.records, on_disk, info.state, *times)
    return _active_part(source, info, on_disk, source.reader.snapshot().index(info))


def _active_part(source: SiriusSource, info: SegmentInfo, on_disk: int, table: IndexTable) -> Part:
    """Describe the active segment. If its index ends before what is known to be there, it is damaged."""
    whole = int(table["last"][-1]) if len(table) else info.first - 1
    records, state = int(table["count"].sum(dtype=np.int64)), str(info.state)
    if whole < source.last:
        return Part(info.id, info.first, source.last, None, on_disk, f"damaged behind {whole}")
    return Part(info.id, info.first, source.last, records, on_disk, state, *_times(table))


def _sealed_index(source: SiriusSource, info: SegmentInfo) -> IndexTable | None:
    """Return a sealed segment's index, or None if the file is no good, as the data is not read here."""
    index = load_index(source.store.fs, source.store.segment_dir(info.id), info.index_crc)
    return None if index is None else index.table


def _times(table: IndexTable | None) -> tuple[int | None, int | None]:
    if table is None:
        return None, None
    filled = table[table["count"] > 0]
    if not len(filled):
        return None, None
    return int(filled["ts_min"].min()), int(filled["ts_max"].max())


def _describe_ancestor(source: AncestorSource) -> dict[str, Any]:
    parts = []
    for segment in source.reader.segments():
        first, last = source.span(segment) or (None, None)
        on_disk = file_size(segment.data_path) + file_size(segment.index_path)
        state = ", ".join(segment.flags) or "plain"
        parts.append(Part(segment.segment_id, first, last, segment.index_entries, on_disk, state))
    leftovers = [os.path.basename(path) for path in source.reader.leftovers]
    return {**_common(source, parts), "leftovers": leftovers}


def _describe_single(source: SingleSource) -> dict[str, Any]:
    table = source.reader.index()
    records = int(table["count"].sum(dtype=np.int64))
    on_disk, times = source.reader.size, _times(table)
    return _common(source, [Part(1, 1, source.last, records, on_disk, "complete", *times)])


def _common(source: Source, parts: list[Part]) -> dict[str, Any]:
    counts = [part.records for part in parts if part.records is not None]
    oldest = [part.oldest_us for part in parts if part.oldest_us is not None]
    newest = [part.newest_us for part in parts if part.newest_us is not None]
    known = sum(counts) if len(counts) == len(parts) else None
    return {
        "path": source.path,
        "kind": source.kind,
        "first": 1 if source.last else 0,
        "last": source.last,
        "records": known,
        "holes": None if known is None else source.last - known,
        "bytes": sum(part.bytes for part in parts),
        "oldest": time_fields(min(oldest, default=None)),
        "newest": time_fields(max(newest, default=None)),
        "live": None,
        "manifest_version": None,
        "tombstone_floor": None,
        "torn_tail": None,
        "damage": None,
        "leftovers": [],
        "segments": [part.as_json() for part in parts],
    }


_KINDS = {
    "sirius": "Sirius log",
    "single": "Sirius log in one file",
    "ancestor-segmented": "log of the Scala Sirius, segmented",
    "ancestor-legacy": "log of the Scala Sirius, legacy",
}


def _show(out: Output, found: dict[str, Any]) -> None:
    live = {True: ", open for writing", False: ", not open for writing", None: ""}
    title = f"{escape(found['path'])}: {_KINDS[found['kind']]}{live[found['live']]}"
    out.line(out.paint(title, "bold"))
    out.pairs(_pairs(found))
    if found["segments"]:
        out.line()
        names = ("id", "first", "last", "records", "holes")
        rows = [
            (*map(_count, map(part.get, names)), size(part["bytes"]), part["state"])
            for part in found["segments"]
        ]
        heads = ("segment", "first", "last", "records", "holes", "bytes", "state")
        out.table(heads, rows, left="state")


def _count(value: int | None) -> str:
    return "?" if value is None else number(value)


def _records(records: int | None, holes: int | None) -> str:
    if records is None or holes is None:
        return "? (a segment is quarantined or damaged)"
    return f"{number(records)}, {plural(holes, 'hole')}"


def _pairs(found: dict[str, Any]) -> list[tuple[str, str]]:
    last, segments = found["last"], plural(len(found["segments"]), "segment")
    oldest, newest = (found[name]["ts_us"] for name in ("oldest", "newest"))
    span = "none" if oldest is None else f"{iso(oldest)} to {iso(newest)}"
    pairs = [
        ("sequence numbers", f"1 to {last:,}" if last else "none yet"),
        ("records", _records(found["records"], found["holes"])),
        ("on disk", f"{size(found['bytes'])} in {segments}"),
    ]
    if found["kind"] in ("sirius", "single"):
        pairs.append(("times", span))
    if found["kind"] == "sirius":
        pairs += [
            ("manifest", f"version {found['manifest_version']}"),
            ("tombstone floor", number(found["tombstone_floor"])),
            ("torn tail", found["torn_tail"] or "none"),
        ]
    if found["damage"]:
        pairs.append(("damage", found["damage"]))
    if found["leftovers"]:
        pairs.append(("leftovers", escape(", ".join(found["leftovers"]))))
    return pairs
