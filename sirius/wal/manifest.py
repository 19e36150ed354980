"""The manifest: which segments make up the log.

Every change of the set of segments (rotation, compaction, merge, quarantine, repair) is a new manifest, numbered one
higher, written as a file of its own and renamed into place: that rename is the moment at which the change happens. A
segment that the newest manifest names and the disk does not hold is fatal; one that no manifest names is rubbish.

A manifest file is two lines of text: a head with the checksum of what follows, and JSON that a person can read::

    sirius-manifest 1 crc32c=8a7f3c12 bytes=412
    {"format": 1, "version": 7, "uid": …, "segments": [{"id": 1, "first": 1, "last": 1000, …}, …]}

Older manifests are kept as long as the segments that only they name (see `LogConfig.retire_after_s`), so that readers
in other processes and plain copies of the folder find a version of which everything is there.

`home` tells a log from a copy of it: it holds the inodes of the folder and its lock file. In a copy a manifest may be
newer than the segments beside it, because files were copied one after the other; only there may an older manifest be
taken instead.

This module is pure: it turns manifests into other manifests, and into bytes and back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from crc32c import crc32c

from sirius.errors import CorruptFile, InvariantViolation
from sirius.types import SegmentId, Seq

FORMAT: Final = 1
_HEAD: Final = "sirius-manifest 1 crc32c={crc:08x} bytes={size}\n"


class State(StrEnum):
    """What a segment is at present."""

    ACTIVE = "active"
    SEALED = "sealed"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """What the manifest knows of a segment. For the active one only `id` and `first` mean something."""

    id: SegmentId
    first: Seq
    last: Seq = Seq(0)
    state: State = State.ACTIVE
    bytes: int = 0
    blocks: int = 0
    records: int = 0
    index_crc: int = 0
    reason: str = ""

    @property
    def name(self) -> str:
        """The segment's folder below `segments/`."""
        return f"{self.id:08d}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """One version of the log's make-up. Segments are in order and cover the log without a gap."""

    uid: int
    version: int = 1
    home: tuple[int, int] = (0, 0)
    next_segment: SegmentId = SegmentId(1)
    tombstone_floor: Seq = Seq(0)
    era: int = 0
    """The version in which deletes were dropped last. What was read in different eras may not fit together."""
    segments: tuple[SegmentInfo, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def active(self) -> SegmentInfo:
        """The segment that is appended to."""
        return self.segments[-1]

    def check(self) -> None:
        """Raise unless the segments cover the log from 1 on, in order, with one active one at the end."""
        expected = 1
        for info in self.segments:
            if info.first != expected:
                raise InvariantViolation(
                    f"manifest {self.version}: segment {info.id} begins at {info.first}, not {expected}"
                )
            if info.state != State.ACTIVE and info.last < info.first:
                raise InvariantViolation(
                    f"manifest {self.version}: segment {info.id} covers {info.first} to {info.last}"
                )
            expected = info.last + 1
        ids = [info.id for info in self.segments]
        if len({*ids}) < len(ids) or max(ids, default=0) >= self.next_segment:
            raise InvariantViolation(
                f"manifest {self.version}: next segment {self.next_segment} after {ids}"
            )
        states = [info.state for info in self.segments]
        if State.ACTIVE in states[:-1] or not states or states[-1] != State.ACTIVE:
            raise InvariantViolation(f"manifest {self.version}: the states are {states}")

    def _next(self, **changes: Any) -> Manifest:
        manifest = replace(self, version=self.version + 1, **changes)
        manifest.check()
        return manifest

    def rotate(self, sealed: SegmentInfo) -> Manifest:
        """The active segment is now `sealed` (or quarantined); a new, empty one follows it."""
        fresh = SegmentInfo(self.next_segment, Seq(sealed.last + 1))
        return self._next(
            segments=(*self.segments[:-1], sealed, fresh),
            next_segment=SegmentId(self.next_segment + 1),
        )

    def extended(self, new: SegmentInfo, sealed: SegmentInfo | None) -> Manifest:
        """A finished segment follows the log's end: the active one, which is now `sealed`, or was empty and goes."""
        before = self.segments[:-1] if sealed is None else (*self.segments[:-1], sealed)
        fresh = SegmentInfo(self.next_segment, Seq(new.last + 1))
        return self._next(
            segments=(*before, new, fresh), next_segment=SegmentId(self.next_segment + 1)
        )

    def swap(
        self, old: Sequence[SegmentId], new: Sequence[SegmentInfo], tombstone_floor: int = 0
    ) -> Manifest:
        """Neighbours `old` give way to `new`, which covers the same range."""
        ids = [info.id for info in self.segments]
        at = ids.index(old[0]) if old and old[0] in ids else len(ids)
        if not old or ids[at : at + len(old)] != list(old):
            raise InvariantViolation(f"segments {list(old)} are not neighbours in {ids}")
        return self._next(
            segments=(*self.segments[:at], *new, *self.segments[at + len(old) :]),
            **self._dropping(tombstone_floor),
        )

    def _dropping(self, tombstone_floor: int) -> dict[str, int]:
        """Return what changes when deletes up to `tombstone_floor` go; 0: none go."""
        if not tombstone_floor:
            return {}
        return {
            "tombstone_floor": max(self.tombstone_floor, tombstone_floor),
            "era": self.version + 1,
        }

    def renewed(self, new: Sequence[SegmentInfo], tombstone_floor: int) -> Manifest:
        """All segments give way to others, which go at least as far; a new, empty one follows them."""
        if new[-1].last < self.active.first - 1:
            raise InvariantViolation(
                f"manifest {self.version}: a log up to {new[-1].last} cannot take the place of one "
                f"that goes on from {self.active.first}"
            )
        fresh = SegmentInfo(self.next_segment, Seq(new[-1].last + 1))
        return self._next(
            segments=(*new, fresh),
            next_segment=SegmentId(self.next_segment + 1),
            tombstone_floor=Seq(tombstone_floor),
            era=self.version + 1,
        )

    def reserve(self, count: int = 1) -> tuple[Manifest, SegmentId]:
        """Give out `count` segment ids. Not a version of its own: ids that get lost are no harm."""
        first = self.next_segment
        return replace(self, next_segment=SegmentId(first + count)), first

    def quarantine(self, segment: SegmentId, reason: str) -> Manifest:
        """A sealed segment turned out to be damaged."""
        if segment not in (info.id for info in self.segments):
            raise InvariantViolation(f"manifest {self.version} has no segment {segment}")
        return self._next(
            segments=tuple(
                replace(info, state=State.QUARANTINED, reason=reason)
                if info.id == segment
                else info
                for info in self.segments
            )
        )

    def tagged(self, **tags: str) -> Manifest:
        """Remember small facts of the layers above, in the same atomic step as everything else."""
        return self._next(tags={**self.tags, **tags})

    def raised(self, tombstone_floor: int) -> Manifest:
        """Deletes up to `tombstone_floor` may be missing."""
        return self._next(**self._dropping(tombstone_floor))

    def at_home(self, home: tuple[int, int], uid: int) -> Manifest:
        """This folder is a copy: it gets an identity of its own."""
        return self._next(home=home, uid=uid)

    def encode(self) -> bytes:
        """Return the manifest's file."""
        payload = json.dumps({"format": FORMAT, **asdict(self)}, sort_keys=False).encode() + b"\n"
        return _HEAD.format(crc=crc32c(payload), size=len(payload)).encode() + payload

    @classmethod
    def decode(cls, raw: bytes, path: str) -> Manifest:
        """Read a manifest's file; `path` is for the error message."""
        head, _, payload = raw.partition(b"\n")
        expected = _HEAD.format(crc=crc32c(payload), size=len(payload)).encode()
        if head + b"\n" != expected:
            raise CorruptFile(path, 0, "the manifest's checksum does not match")
        fields = json.loads(payload)
        fields.pop("format")
        fields["home"] = tuple(fields["home"])
        fields["segments"] = tuple(
            SegmentInfo(**{**info, "state": State(info["state"])}) for info in fields["segments"]
        )
        return cls(**fields)
