"""Files of the disk in memory: what was written, what is on disk, and what may become of the rest."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

_SHARED_BYTES_MAX = 4 << 20


# Beyond so many outcomes of one file, or of all names, a limited enumeration draws a sample.
OUTCOMES_MAX = 4096
_BOUNDARIES_MAX = 16
_SECTOR_BYTES = 512


def error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


class Write(NamedTuple):
    """Bytes put at an offset."""

    offset: int
    data: bytes

    @property
    def start(self) -> int:
        return self.offset

    @property
    def end(self) -> int:
        return self.offset + len(self.data)

    def apply(self, content: bytearray, base: int = 0) -> None:
        """Change `content`, which begins at offset `base` of the file."""
        at = self.offset - base
        if at > len(content):
            content.extend(bytes(at - len(content)))
        content[at : at + len(self.data)] = self.data

    def tears(self) -> list[tuple[int, bool]]:
        """Return how it may be torn: bytes kept, and whether zeroes follow up to its length."""
        first = (self.offset // _SECTOR_BYTES + 1) * _SECTOR_BYTES
        boundaries = list(range(first - self.offset, len(self.data), _SECTOR_BYTES))
        if len(boundaries) > _BOUNDARIES_MAX:
            half = _BOUNDARIES_MAX // 2
            boundaries = boundaries[:half] + boundaries[-half:]
        cuts = sorted({len(self.data) // 2, *boundaries} - {0})
        return [(0, True), *itertools.product(cuts, (False, True))]

    def torn(self, kept: int, zero_filled: bool) -> Write:
        tail = bytes(len(self.data) - kept) if zero_filled else b""
        return Write(self.offset, self.data[:kept] + tail)

    def without_data(self) -> Resize:
        """Return what is left of it once its pages are lost: the size."""
        return Resize(self.end, shrinks=False)

    def overwritten(self, offset: int, data: bytes) -> Write:
        """Return it with its share of a rotten range."""
        content = bytearray(self.data)
        _overlay(content, offset - self.offset, data)
        return Write(self.offset, bytes(content))

    def cut(self, size: int) -> Write | None:
        return Write(self.offset, self.data[: size - self.offset]) if self.offset < size else None


class Resize(NamedTuple):
    """A new size: truncation cuts or grows, allocation only grows."""

    size: int
    shrinks: bool

    @property
    def start(self) -> int:
        return self.size

    def apply(self, content: bytearray, base: int = 0) -> None:
        size = self.size - base
        content.extend(bytes(max(0, size - len(content))))
        if self.shrinks:
            del content[size:]

    def without_data(self) -> Resize:
        return self

    def cut(self, size: int) -> Resize:
        return self._replace(size=min(size, self.size))


_FileChange: TypeAlias = Write | Resize


def _overlay(content: bytearray, at: int, data: bytes) -> None:
    """Put `data` over `content` at a place that may stick out on either side."""
    first, last = max(at, 0), min(at + len(data), len(content))
    if first < last:
        content[first:last] = data[first - at : last - at]


class FileNode:
    """A file's two states and what lies between them."""

    __slots__ = ("durable", "owner", "pending", "visible")

    def __init__(self, owner: object, visible: bytearray, durable: bytearray) -> None:
        self.owner = owner
        self.visible = visible
        self.durable = durable
        self.pending: list[_FileChange] = []

    @classmethod
    def settled(cls, content: bytearray) -> FileNode:
        """Return a node that nobody owns, on disk as it is."""
        return cls(None, content, content)

    def copy(self, owner: object) -> FileNode:
        node = FileNode(owner, bytearray(self.visible), bytearray(self.durable))
        node.pending = list(self.pending)
        return node

    def is_settled(self) -> bool:
        return not self.pending and (self.visible is self.durable or self.visible == self.durable)

    def read(self, offset: int, length: int) -> bytes:
        return bytes(memoryview(self.visible)[offset : offset + length])

    def change(self, change: _FileChange) -> None:
        change.apply(self.visible)
        self.pending.append(change)

    def sync(self) -> None:
        for change in self.pending:
            change.apply(self.durable)
        self.pending.clear()

    def fail_sync(self) -> None:
        self.pending = [change.without_data() for change in self.pending]

    def forget(self) -> None:
        self.visible = bytearray(self.durable)
        for change in self.pending:
            change.apply(self.visible)

    def reset(self, data: bytes) -> None:
        self.visible, self.durable, self.pending = bytearray(data), bytearray(data), []

    def overwrite(self, offset: int, data: bytes) -> None:
        _overlay(self.visible, offset, data)
        _overlay(self.durable, offset, data)
        self.pending = [
            change.overwritten(offset, data) if isinstance(change, Write) else change
            for change in self.pending
        ]

    def cut(self, size: int) -> None:
        del self.visible[size:]
        del self.durable[size:]
        cut = (change.cut(size) for change in self.pending)
        self.pending = [change for change in cut if change is not None]


class FileOutcomes:
    """What may be left of one file: a common beginning, and the endings known so far.

    The first ending is "everything survived". The others are known from the start, or where they
    are too many for a sample, as they are drawn.
    """

    def __init__(self, node: FileNode, limit: int | None) -> None:
        self._pending = node.pending
        self._base = min([len(node.durable), *(change.start for change in node.pending)])
        self._prefix = bytes(node.durable[: self._base])
        self._rest = node.durable[self._base :]
        self._tails: list[bytes] = []
        self._places: dict[bytes, int] = {}
        self._nodes: dict[int, FileNode] = {}
        self._add(node.pending)
        self.nothing = self._add([])
        self.is_complete = limit is None or _survivors_max(node.pending) <= OUTCOMES_MAX
        if self.is_complete:
            for survivors in _survivors(node.pending):
                self._add(survivors)

    def __len__(self) -> int:
        return len(self._tails)

    def draw(self, rng: random.Random) -> int:
        if self.is_complete:
            return rng.randrange(len(self))
        return self._add(_draw_survivors(self._pending, rng))

    def node(self, pick: int) -> FileNode:
        """Return a file with one of the endings, shared by the states that pick it."""
        if pick not in self._nodes:
            if len(self._nodes) * len(self._prefix) > _SHARED_BYTES_MAX:
                self._nodes.clear()
            content = bytearray(self._prefix)
            content += self._tails[pick]
            self._nodes[pick] = FileNode.settled(content)
        return self._nodes[pick]

    def _add(self, survivors: Iterable[_FileChange]) -> int:
        content = bytearray(self._rest)
        for change in survivors:
            change.apply(content, self._base)
        tail = bytes(content)
        place = self._places.setdefault(tail, len(self._tails))
        if place == len(self._tails):
            self._tails.append(tail)
        return place


def _survivors_max(changes: Sequence[_FileChange]) -> int:
    """Return a bound on how many possibilities `_survivors` yields."""
    tears_max = max((len(change.tears()) for change in _writes(changes)), default=0)
    return int(2 ** len(changes)) * (1 + tears_max)


def _survivors(changes: Sequence[_FileChange]) -> Iterator[list[_FileChange]]:
    """Yield the changes of a file that a crash may leave, in every combination."""
    for kept in itertools.product((True, False), repeat=len(changes)):
        alive = list(itertools.compress(changes, kept))
        yield alive
        for last in _writes(alive)[-1:]:
            for tear in last.tears():
                yield _with_torn(alive, last, tear)


def _draw_survivors(changes: Sequence[_FileChange], rng: random.Random) -> list[_FileChange]:
    chance = rng.choice((0.1, 0.5, 0.9))
    alive = [change for change in changes if rng.random() < chance]
    writes = _writes(alive)
    if not writes or rng.random() < 0.5:
        return alive
    return _with_torn(alive, writes[-1], rng.choice(writes[-1].tears()))


def _writes(changes: Iterable[_FileChange]) -> list[Write]:
    return [change for change in changes if isinstance(change, Write)]


def _with_torn(alive: list[_FileChange], last: Write, tear: tuple[int, bool]) -> list[_FileChange]:
    torn = last.torn(*tear)
    return [torn if change is last else change for change in alive]
