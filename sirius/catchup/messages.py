"""What nodes say to each other to catch up.

Requests have a number that comes back in the answer; numbers of different lives of a process do not meet, so a late or
repeated answer is nobody's. Every answer says how its sender stands (`Standing`).
"""

from __future__ import annotations

from typing import NamedTuple

from sirius.paxos.values import Value
from sirius.types import NodeId, SegmentId, Seq

Path = tuple[NodeId, ...]
"""The nodes from a primary down to the one that speaks: each took what it has from the one before."""


class Edition(NamedTuple):
    """Which deletes a log has dropped: some up to `floor`; and `era` is another one whenever it dropped some again."""

    era: int = 0
    floor: Seq = Seq(0)


class Standing(NamedTuple):
    """How a source stands."""

    tip: Seq
    """It has everything up to here."""
    whole: Seq
    """What it has is the state of one moment for whoever has got this far. See `sirius.catchup.ranges`."""
    edition: Edition
    """The edition of the log that the answer was read from."""
    path: Path


class Pull(NamedTuple):
    """What is decided from `first` to `last`? Answered by Range, Unavailable, Resync or Busy."""

    request: int
    first: Seq
    last: Seq
    bytes_max: int
    era: int | None = None
    """All that I have came from you, and from this era of your log."""


class Range(NamedTuple):
    """These values, which follow each other without a gap, are all that is decided from `first` to `last`.

    With nothing to tell, `last` is `first - 1`. If `last` is below the tip there is more.
    """

    request: int
    first: Seq
    last: Seq
    values: tuple[Value, ...]
    standing: Standing


class Unavailable(NamedTuple):
    """I cannot tell what is there: ask somebody else."""

    request: int
    reason: str
    standing: Standing


class Resync(NamedTuple):
    """Deletes behind your position are gone from my log: my part does not fit yours. Take all of it."""

    request: int
    standing: Standing


class Busy(NamedTuple):
    """Come back in a while."""

    request: int
    retry_s: float


class PullSegments(NamedTuple):
    """Which sealed segments do you have from `first` on? Answered like Pull, but with Segments."""

    request: int
    first: Seq
    era: int | None = None


class SegmentOffer(NamedTuple):
    """A segment, or the part of one that holds whole blocks. Those bytes are the same for ever.

    `checksum` is whatever both drivers understand; the machine hands it on.
    """

    id: SegmentId
    first: Seq
    last: Seq
    bytes: int
    checksum: int
    offset: int = 0
    """Where in its file it begins."""


class Segments(NamedTuple):
    """Segments that follow each other, the first of which begins at or behind the slot asked for."""

    request: int
    offers: tuple[SegmentOffer, ...]
    standing: Standing


class PullFile(NamedTuple):
    """So many bytes of a segment's file from `offset` on, please. They come as a stream of their own: see `effects`."""

    segment: SegmentId
    offset: int
    bytes: int
    position: Seq
    """How far I am; the other questions say it by their `first` or `after`."""


class Subscribe(NamedTuple):
    """Push to me what follows `after`, but not more than this until I say so again; that is also the confirmation."""

    after: Seq
    slots: int
    bytes: int


class Push(NamedTuple):
    """What comes next; without values, a sign of life."""

    values: tuple[Value, ...]
    standing: Standing


class Here(NamedTuple):
    """I am in this region and this far. `able`: nothing speaks against my pulling for all of us."""

    region: str
    position: Seq
    able: bool


Message = (
    Pull
    | Range
    | Unavailable
    | Resync
    | Busy
    | PullSegments
    | Segments
    | PullFile
    | Subscribe
    | Push
    | Here
)
