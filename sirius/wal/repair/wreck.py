"""Opening a segment in whatever state it is: its file header may be damaged, and the disk may refuse to read parts."""

from __future__ import annotations

from errno import EIO
from itertools import pairwise
from typing import Final, cast

from sirius.errors import CorruptFile, NotALog
from sirius.wal.frames import (
    FILE_HEADER_BYTES,
    MARK_BYTES,
    FileHeader,
    FileKind,
    parse_mark,
    read_file_header,
)
from sirius.wal.fs import File, FileSystem
from sirius.wal.manifest import SegmentInfo
from sirius.wal.record import DEFAULT_LIMITS, Limits
from sirius.wal.segment import INDEX, Segment, read_whole

_PAGE_BYTES: Final = 4096


def identify(file: File, segment: int) -> FileHeader | None:
    """Return a segment's file header. The mark that every segment begins with can stand in for it."""
    try:
        header = read_file_header(file, "")
    except (CorruptFile, NotALog):
        return _from_first_mark(file, segment)
    in_place = header.kind == FileKind.SEGMENT and header.segment == segment
    return header if in_place else _from_first_mark(file, segment)


def _from_first_mark(file: File, segment: int) -> FileHeader | None:
    raw = file.read(FILE_HEADER_BYTES, MARK_BYTES)
    uid = int.from_bytes(raw[16:24], "little")
    header = FileHeader(FileKind.SEGMENT, segment, uid, 0, 0)
    mark = parse_mark(raw, FILE_HEADER_BYTES, header)
    return header._replace(first=mark.last + 1) if mark else None


class _Patient:
    """A file of which pages that the disk does not give read as zeroes, so that the rest can be saved."""

    def __init__(self, file: File) -> None:
        self._file = file

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def read(self, offset: int, length: int) -> bytes:
        try:
            return self._file.read(offset, length)
        except OSError as error:
            if error.errno != EIO:
                raise
        end = min(offset + length, self._file.size())
        stops = [offset, *range(offset - offset % _PAGE_BYTES + _PAGE_BYTES, end, _PAGE_BYTES), end]
        return b"".join(self._page(start, stop - start) for start, stop in pairwise(stops))

    def _page(self, offset: int, length: int) -> bytes:
        try:
            return self._file.read(offset, length)
        except OSError:
            return bytes(max(length, 0))


class Wreck(Segment):
    """A segment that is opened in whatever state it is. `uid` is the log's, if nothing else tells."""

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        info: SegmentInfo,
        uid: int,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._uid = uid
        self.header_damaged = False
        """Whether the file header is not what it should be."""
        self.identified = True
        """Whether something in the file says which segment it is."""
        super().__init__(fs, folder, info, limits)

    def _checked_header(self) -> FileHeader:
        self._file = cast(File, _Patient(self._file))
        found = identify(self._file, self.info.id)
        self.identified = found is not None and found.first == self.info.first
        header = FileHeader(FileKind.SEGMENT, self.info.id, self._uid, self.info.first, 0)
        if found is not None and self.identified:
            header = found
        self.header_damaged = self._file.read(0, FILE_HEADER_BYTES) != header.encode()
        return header

    def index_file(self) -> bytes:
        """Return what the index file holds, as far as it can be read."""
        try:
            return read_whole(self._fs, f"{self._folder}/{INDEX}")
        except OSError:
            return b""
