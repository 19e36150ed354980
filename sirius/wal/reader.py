"""Reading a log that somebody else may be writing.

`LogReader` takes no lock and writes nothing. `refresh` looks at the disk again; `snapshot` gives a fixed view of what
it saw last; `follow` yields what arrives. A reader of a live log sees whole, checked blocks of decided entries or
nothing: a block that is half written is simply not there yet. Damage in front of what was synced is told apart from
that: what lies behind it counts as there (`last` says how far), and reading it raises `RangeUnavailable`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Final, Self

from crc32c import crc32c

from sirius.errors import LogClosed, MissingSegment
from sirius.types import Seq
from sirius.wal.batch import Batch
from sirius.wal.frames import (
    FILE_HEADER_BYTES,
    MARK_BYTES,
    End,
    Mark,
    Walk,
    diagnose,
    parse_mark,
)
from sirius.wal.fs import FileSystem, OsFileSystem
from sirius.wal.index import Index, row_of
from sirius.wal.manifest import Manifest, SegmentInfo
from sirius.wal.record import DEFAULT_LIMITS, Limits
from sirius.wal.recovery import last_known
from sirius.wal.segment import INDEX, read_whole
from sirius.wal.settling import load_whole
from sirius.wal.snapshot import ActiveView, SegmentCache, Snapshot
from sirius.wal.store import Store

_RETRIES: Final = 5


class ActiveTail:
    """Follows the growth of a segment that another process appends to."""

    def __init__(self, store: Store, info: SegmentInfo, cache: SegmentCache) -> None:
        self.info = info
        self.segment = cache.open(info)
        self.fault: str | None = None
        self.damage: str | None = None
        self._start_over()
        self._believe_index(store)

    def _start_over(self) -> None:
        # Snapshots may hold the old index, so this is a new one.
        self.index = Index()
        self.position = FILE_HEADER_BYTES
        self.last = self._whole = Seq(self.info.first - 1)
        self._mark: Mark | None = None

    def _believe_index(self, store: Store) -> None:
        """Skip what the index file describes, if the mark where it ends vouches for it."""
        path = f"{store.segment_dir(self.info.id)}/{INDEX}"
        raw = read_whole(store.fs, path) if store.fs.exists(path) else b""
        index = Index.from_bytes(raw)
        if not len(index):
            return
        _, last, offset, size, *_ = index.row(len(index) - 1)
        at = offset + size
        if at + MARK_BYTES > self.segment.size():
            return
        mark = parse_mark(self.segment.read(at, MARK_BYTES), at, self.segment.header)
        if mark and mark.index_crc == crc32c(raw) and mark.last == last:
            self.index, self.position, self._mark = index, at + MARK_BYTES, mark
            self.last = self._whole = Seq(last)

    def advance(self) -> None:
        """Take in the blocks that have become whole since the last time."""
        if self.position > self.segment.size():
            self._start_over()
        walk = self._walk()
        if diagnose(walk) == End.CORRUPT:
            # The writer may have taken back what this one had seen, and put something else in its place.
            self._start_over()
            walk = self._walk()
        self.fault, self.damage = walk.fault, None
        if diagnose(walk) == End.CORRUPT:
            self.damage = f"{self.segment.path}: damaged at byte {walk.position}: {walk.fault}"
            self.last = Seq(last_known(walk))

    def _walk(self) -> Walk:
        walk = self.segment.walk(self.position, self._whole + 1)
        walk.mark = self._mark
        for chunk in walk.chunks():
            for at, header in chunk.spans:
                self.index.append(row_of(header, chunk.base + at))
        self.position, self._mark = walk.position, walk.mark
        self.last = self._whole = Seq(walk.next_first - 1)
        return walk


class LogReader:
    """Reads a log without touching it. Not thread-safe; its snapshots are."""

    def __init__(self, store: Store, limits: Limits) -> None:
        self._store = store
        self._limits = limits
        self._cache = SegmentCache(store, limits)
        self._tail: ActiveTail | None = None
        self.manifest, self._tail = self._load()

    @classmethod
    def open(
        cls, path: str, *, fs: FileSystem | None = None, limits: Limits = DEFAULT_LIMITS
    ) -> LogReader:
        """Open the log in folder `path`, live or not."""
        return cls(Store(fs or OsFileSystem(), str(path)), limits)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the files. Snapshots that are still in use keep theirs."""
        self._tail = None
        self._cache = SegmentCache(self._store, self._limits)

    @property
    def _open_tail(self) -> ActiveTail:
        if self._tail is None:
            raise LogClosed(f"{self._store.root} is closed")
        return self._tail

    @property
    def last(self) -> Seq:
        """The newest sequence number seen so far."""
        return self._open_tail.last

    @property
    def torn(self) -> str | None:
        """Why the last bytes of the active segment do not make a whole block, if they do not."""
        return self._open_tail.fault

    @property
    def damage(self) -> str | None:
        """Where the active segment is damaged and how, if it is."""
        return self._open_tail.damage

    def refresh(self) -> Seq:
        """Look at the disk again; return the newest sequence number."""
        tail = self._open_tail
        if self._store.versions()[:1] != [self.manifest.version]:
            self.manifest, self._tail = self._load()
        else:
            tail.advance()
        return self.last

    def _load(self) -> tuple[Manifest, ActiveTail]:
        """Read manifest and active segment, which may be replaced between the two."""
        for attempt in range(_RETRIES):
            try:
                manifest = load_whole(self._store, self._limits)
                return manifest, self._tail_of(manifest)
            except (MissingSegment, FileNotFoundError):
                if attempt == _RETRIES - 1:
                    raise
        raise MissingSegment(f"{self._store.root}: its segments keep changing")

    def _tail_of(self, manifest: Manifest) -> ActiveTail:
        tail = self._tail
        if tail is None or tail.info.id != manifest.active.id:
            tail = ActiveTail(self._store, manifest.active, self._cache)
        tail.advance()
        return tail

    def snapshot(self) -> Snapshot:
        """Return a fixed view of what the last refresh saw."""
        tail = self._open_tail
        view = ActiveView(tail.segment, tail.index, tail.damage)
        return Snapshot(self.manifest, self._cache, view, self.last)

    def follow(
        self, first: int, wait: Callable[[], bool], last: int | None = None
    ) -> Iterator[Batch]:
        """Yield batches from `first` on as they arrive.

        `wait` is called when there is nothing new: it may sleep, and returns False to end. Segments that disappear
        under the reader because compaction replaced them are found again in the next manifest, at the same position.
        """
        position = first
        while last is None or position <= last:
            self.refresh()
            upto = self.last if last is None else min(last, self.last)
            if position <= upto:
                for batch in self._patiently(position, upto):
                    position = batch.last + 1
                    yield batch
            elif not wait():
                return

    def _patiently(self, first: int, last: int) -> Iterator[Batch]:
        try:
            yield from self.snapshot().batches(first, last)
        except (MissingSegment, FileNotFoundError):
            version = self.manifest.version
            self.refresh()
            if self.manifest.version == version:
                raise
