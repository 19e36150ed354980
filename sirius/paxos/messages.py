"""What nodes say to each other. Each travels in an envelope with the cluster's id, the configuration's number, the
sender, and the node id it is meant for: a message for an earlier life of a disk is nobody's."""

from __future__ import annotations

from typing import Any, NamedTuple

from sirius.paxos.members import Configuration, Member
from sirius.paxos.values import PValue, Request, Value
from sirius.types import Ballot, NodeId, Seq


class Prepare(NamedTuple):
    """Phase 1a: will you follow this ballot? Asks for what was accepted behind `decided`."""

    ballot: Ballot
    decided: Seq
    handed_over: Ballot | None = None
    """The ballot of a leader that asked for this election, and has given up its lease."""


class Promise(NamedTuple):
    """Phase 1b: I will. I know all decisions up to `decided`, and accepted these values behind it.

    `under` is the ballot under which I accepted last, also if nothing of that is left.
    """

    ballot: Ballot
    decided: Seq
    under: Ballot
    accepted: tuple[PValue, ...]


class Accept(NamedTuple):
    """Phase 2a: take this value under this ballot. All is decided up to `decided`."""

    ballot: Ballot
    value: Value
    decided: Seq


class Accepted(NamedTuple):
    """Phase 2b: I did, for the slots `first` to `last`."""

    ballot: Ballot
    first: Seq
    last: Seq


class Preempted(NamedTuple):
    """No: I promised a higher ballot than yours."""

    ballot: Ballot
    promised: Ballot


class Decided(NamedTuple):
    """All is decided up to here, under this ballot or an earlier one."""

    ballot: Ballot
    decided: Seq


class PreVote(NamedTuple):
    """Would you promise this ballot? Asked before anything is disturbed."""

    ballot: Ballot
    decided: Seq


class PreVoted(NamedTuple):
    """Whether I would; how far I know the decisions; and the highest ballot I know of."""

    ballot: Ballot
    granted: bool
    decided: Seq
    highest: Ballot


class Beat(NamedTuple):
    """The leader is alive, and all is decided up to here."""

    ballot: Ballot
    number: int
    decided: Seq


class BeatAck(NamedTuple):
    """I follow you, and know the decisions up to here."""

    ballot: Ballot
    number: int
    decided: Seq


class Forward(NamedTuple):
    """Requests of the sender's session, in order, for the leader to propose."""

    requests: tuple[Request, ...]


class Expected(NamedTuple):
    """I cannot take that request: of this session, this serial comes next. 0: the session is not known any more."""

    session: int
    serial: int


class AskIndex(NamedTuple):
    """From where on is a read up to date?"""

    token: int


class ReadIndex(NamedTuple):
    """From here on."""

    token: int
    slot: Seq


class TakeOver(NamedTuple):
    """Lead in my place, at once."""

    ballot: Ballot


class Hello(NamedTuple):
    """Here I am. `fresh`: my disk is empty, and no cluster wants me. `wanted`: I lead one, and it wants you."""

    fresh: bool
    wanted: bool = False


class Welcome(NamedTuple):
    """The answer to it: whom I follow; and whether I am fresh too."""

    fresh: bool
    leader: Member | None


class Found(NamedTuple):
    """You and I are voters of a cluster that begins now."""

    configuration: Configuration


Message = (
    Prepare
    | Promise
    | Accept
    | Accepted
    | Preempted
    | Decided
    | PreVote
    | PreVoted
    | Beat
    | BeatAck
    | Forward
    | Expected
    | AskIndex
    | ReadIndex
    | TakeOver
    | Hello
    | Welcome
    | Found
)


class Envelope(NamedTuple):
    """A message on the way. `to` is 0 if the sender does not know which life of the name it speaks to.

    Other machines of a node send theirs in the same envelopes.
    """

    cluster: int
    number: int
    sender: Member
    to: NodeId
    message: Any
