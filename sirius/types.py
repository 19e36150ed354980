"""Names for the integers that must never be mixed up."""

from __future__ import annotations

from typing import Final, NamedTuple, NewType

Seq = NewType("Seq", int)
"""A position in the one log. The first record has sequence number 1; 0 means "nothing yet"."""

SegmentId = NewType("SegmentId", int)
"""A segment's number. Numbers are given once and never used again, so a higher one is newer."""

ByteOffset = NewType("ByteOffset", int)
"""A position in a file."""


NodeId = NewType("NodeId", int)
"""One life of a node's disk. A node that lost its disk has another one, and so no vote; 0 means "not known"."""


class Ballot(NamedTuple):
    """A number that orders the attempts to lead: by round, then by node. (0, 0) is below every one that is used."""

    round: int
    node: int


NO_BALLOT: Final = Ballot(0, 0)
