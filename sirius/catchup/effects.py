"""What a call of the machine asks for, in the order in which it must happen.

1. `floor`: the log's tombstone floor rises to this, on disk, before anything below is appended: what comes was read
   from a log that has dropped deletes up to there.
2. `learned` goes to the consensus machine (`learn`), whose appends go to the log: decided values, in order, proven.
3. `segments`: files on their way. `FetchSegment` opens a stream to the source with a `PullFile`, checks what comes and
   writes it into a file that is not part of the log. It always ends, silence ends it too, and is answered by `fetched`,
   by `interrupted` (what has come stays, and the next one goes on from there), or by `withheld` (the source has it no
   more). `InstallSegment` checks it as a whole (its checksum, that its blocks cover exactly what was offered) and makes
   it the next of the log, or of the staged log, and is answered by `installed`. `refused` answers either: what came is
   damaged. `DropSegment` ends a stream under way, whose answer nobody waits for any more, and deletes what came. These
   steps happen in their order, and may take their time: what follows below does not wait for them.
4. `resync`: `BeginResync` empties the staging place, whatever is there, also after a crash; `Stage` appends to it;
   `FinishResync` swaps it for the log in one step that a crash either did or did not do, has the application drop the
   keys that are not in the new state, and is answered by `resynced` or `resync_failed`; nothing is appended to either
   log in between. `AbandonResync` drops the staging place.
5. `read`: reads for others; each is answered by exactly one of `found`, `listed` or `unreadable`.
6. `send` leaves. It waits for nothing that stands above.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from sirius.catchup.messages import Message, SegmentOffer
from sirius.paxos.members import Member
from sirius.paxos.values import Value
from sirius.types import Seq


class ReadRange(NamedTuple):
    """Values from the log: from `first`, at most to `last`, not much more than `bytes_max`, at least one."""

    read: int
    first: Seq
    last: Seq
    bytes_max: int


class ListSegments(NamedTuple):
    """Segments, or parts of them, in order: from where one begins at or behind `first`, at most `segments_max`."""

    read: int
    first: Seq
    segments_max: int


Read = ReadRange | ListSegments


class FetchSegment(NamedTuple):
    """Have it sent, or the rest of it. `position` is how far this node is, for the source to know."""

    transfer: int
    offer: SegmentOffer
    source: Member
    position: Seq


class InstallSegment(NamedTuple):
    """All of it is there. `staged`: it belongs to the staged log."""

    transfer: int
    offer: SegmentOffer
    staged: bool


class DropSegment(NamedTuple):
    """The rest will not come."""

    transfer: int
    offer: SegmentOffer


SegmentStep = FetchSegment | InstallSegment | DropSegment


class BeginResync(NamedTuple):
    """Get ready to stage a whole log that comes from `source`."""

    source: Member
    floor: Seq


class Stage(NamedTuple):
    """Append these to the staged log."""

    values: tuple[Value, ...]


class FinishResync(NamedTuple):
    """The staged log reaches up to `last`, its tombstone floor is `floor`: it is the log from now on."""

    last: Seq
    floor: Seq


class AbandonResync(NamedTuple):
    """Nothing will come of the staged log."""

    reason: str


ResyncStep = BeginResync | Stage | FinishResync | AbandonResync


@dataclass(slots=True)
class Effects:
    """See above. A `floor` of 0 asks for nothing."""

    floor: Seq = Seq(0)
    learned: list[Value] = field(default_factory=list)
    segments: list[SegmentStep] = field(default_factory=list)
    resync: list[ResyncStep] = field(default_factory=list)
    read: list[Read] = field(default_factory=list)
    send: list[tuple[Member, Message]] = field(default_factory=list)
