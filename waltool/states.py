"""The state that a log stands for, whatever the log's format: see `sirius.wal.state`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from sirius.types import SegmentId, Seq
from sirius.wal import Batch, SegmentInfo
from sirius.wal.ancestor import AncestorSegment
from sirius.wal.state import Segmented
from waltool.progress import Progress
from waltool.source import AncestorSource, SiriusSource, Source


class _Whole:
    """A log without segments, taken for one. While it is read, memory holds 48 bytes for each of its records."""

    def __init__(self, source: Source) -> None:
        self._source = source

    @property
    def segments(self) -> Sequence[SegmentInfo]:
        return (SegmentInfo(SegmentId(1), Seq(1), Seq(self._source.last)),)

    def segment_batches(self, info: SegmentInfo) -> Iterator[Batch]:  # noqa: ARG002
        return self._source.batches()


class _Ancestral:
    """A log of the Scala Sirius with its own segments."""

    def __init__(self, source: AncestorSource) -> None:
        self._source = source
        self._segments: dict[int, AncestorSegment] = {
            segment.segment_id: segment for segment in source.reader.segments()
        }

    @property
    def segments(self) -> Sequence[SegmentInfo]:
        return [SegmentInfo(SegmentId(number), Seq(1)) for number in self._segments]

    def segment_batches(self, info: SegmentInfo) -> Iterator[Batch]:
        return self._source.segment_batches(self._segments[info.id])


def counting(bar: Progress) -> Callable[[int], None]:
    """Return what moves a bar on by so many records."""
    done = 0

    def advance(records: int) -> None:
        nonlocal done
        done += records
        bar.at(done)

    return advance


def state_of(source: Source) -> Segmented:
    """Return what `state_digest` and `diff` read."""
    if isinstance(source, SiriusSource):
        return source.reader.snapshot()
    return _Ancestral(source) if isinstance(source, AncestorSource) else _Whole(source)
