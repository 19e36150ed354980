"""What a call of the machine asks for, in the order in which it must happen.

1. `persist` goes to the journal, in order, and the call gets the next ticket.
2. `send` leaves when all that was ever asked to be persisted, up to and with this call, is on disk. A promise that
   could be forgotten is no promise, and an earlier one may still be on its way to the disk.
3. `send_now` does not depend on the disk.
4. `append` goes to the log: decided values, in slot order, each once.
5. `answers` go to those who asked: outcomes of requests and reads of this node.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sirius.paxos.members import Member
from sirius.paxos.messages import Message
from sirius.paxos.values import Value
from sirius.types import Ballot, Seq


class KeepPromise(NamedTuple):
    """The promise to a ballot."""

    ballot: Ballot


class KeepBallot(NamedTuple):
    """That this node has used a ballot, and never will again."""

    ballot: Ballot


class KeepAccepted(NamedTuple):
    """A value accepted under a ballot."""

    ballot: Ballot
    value: Value


class KeepNote(NamedTuple):
    """A small fact under a name."""

    key: str
    value: Any


class Trim(NamedTuple):
    """That values up to here need not be kept: they are decided, and durable in the log."""

    decided: Seq


Entry = KeepPromise | KeepBallot | KeepAccepted | KeepNote | Trim


class Done(NamedTuple):
    """The request was decided; its updates have consecutive slots up to `last`."""

    token: int
    last: Seq


class Unknown(NamedTuple):
    """The request may have been decided, may yet be, or never will: nobody here can say."""

    token: int
    reason: str


class Rejected(NamedTuple):
    """The request was not, and never will be, decided."""

    token: int
    reason: str


class ReadAt(NamedTuple):
    """A read is up to date once everything up to `slot` is applied."""

    token: int
    slot: Seq


class ReadFailed(NamedTuple):
    """No leader answered for a read."""

    token: int
    reason: str


Answer = Done | Unknown | Rejected | ReadAt | ReadFailed


@dataclass(slots=True)
class Effects:
    """See above. `ticket` numbers the calls that persist something; 0 if this one does not."""

    persist: list[Entry] = field(default_factory=list)
    send: list[tuple[Member, Message]] = field(default_factory=list)
    send_now: list[tuple[Member, Message]] = field(default_factory=list)
    append: list[Value] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    ticket: int = 0
