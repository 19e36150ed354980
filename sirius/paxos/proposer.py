"""This node's own requests, from `propose` until it is known what became of them.

They get their serials when they are sent to a leader for the first time, and stay until a decided value is seen with
them in it. Until then they are sent again, in order, to whoever leads; sessions make that harmless.

**Time-outs.** A request that was never sent is *rejected*: it has no effect. One that was sent is *unknown*. Its
serials must be used up before later ones can be taken, so it stays in its place without its updates, as a cancelled
one. If the original was never taken, the cancelled one takes its serials and does nothing: it cannot be revived.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from sirius.paxos.config import PaxosConfig
from sirius.paxos.effects import Answer, Done, Rejected, Unknown
from sirius.paxos.values import Request, Run
from sirius.types import Seq


@dataclass(slots=True)
class _Asked:
    token: int
    updates: Sequence[Any]
    size: int
    deadline: float


@dataclass(slots=True)
class _Sent:
    request: Request
    deadline: float
    token: int
    answered: bool = False


class Proposer:
    """The requests of one node. Bounded in number and bytes: `has_room` says whether one more fits."""

    def __init__(self, config: PaxosConfig, new_session: Callable[[], int], decided: Seq) -> None:
        self._config = config
        self._new_session = new_session
        self._asked: deque[_Asked] = deque()
        self._sent: deque[_Sent] = deque()
        self._asked_bytes = 0
        self._sent_bytes = 0
        self._cursor = 0
        """How many of those that were sent before need not be sent again now."""
        self.sent_at = 0.0
        self.open(decided)

    def open(self, decided: Seq) -> None:
        """Begin a session."""
        self.session = self._new_session()
        self.opened = decided
        self._serial = 1

    def __len__(self) -> int:
        return len(self._asked) + len(self._sent)

    @property
    def bytes(self) -> int:
        return self._asked_bytes + self._sent_bytes

    @property
    def is_waiting(self) -> bool:
        """Whether something was sent that is not decided yet."""
        return bool(self._sent)

    def has_room(self, size: int) -> bool:
        fits = self.bytes + size <= self._config.pending_bytes_max or not len(self)
        return fits and len(self) < self._config.pending_requests_max

    def ask(self, token: int, updates: Sequence[Any], size: int, now: float) -> None:
        """Take a request."""
        deadline = now + self._config.request_timeout_s
        self._asked.append(_Asked(token, updates, size, deadline))
        self._asked_bytes += size

    def next_requests(self, now: float) -> list[Request]:
        """Return what to send to the leader now, in order: what was rewound, and new ones while there is room."""
        requests = []
        if self._cursor < len(self._sent):
            requests += [sent.request for sent in islice(self._sent, self._cursor, None)]
        room = self._config.forward_bytes_max
        while self._asked and (not self._sent or self._sent_bytes + self._asked[0].size <= room):
            requests.append(self._number(self._asked.popleft()))
        self._cursor = len(self._sent)
        if requests:
            self.sent_at = now
        return requests

    def _number(self, asked: _Asked) -> Request:
        request = Request(self.session, self._serial, self.opened, asked.updates, asked.size)
        self._serial = request.last_serial + 1
        self._sent.append(_Sent(request, asked.deadline, asked.token))
        self._asked_bytes -= asked.size
        self._sent_bytes += asked.size
        return request

    def rewind(self, serial: int = 0) -> None:
        """Have everything that was sent, from a serial on, sent again."""
        self._cursor = sum(sent.request.serial < serial for sent in self._sent)

    # ------------------------------------------------------------------ outcomes

    def decided(self, run: Run) -> list[Answer]:
        """Answer the requests that a decided value holds."""
        if run.session != self.session:
            return []
        answers: list[Answer] = []
        while self._sent and (last := self._sent[0].request.last_serial) <= run.last_serial:
            sent = self._pop()
            if not sent.answered:
                answers.append(Done(sent.token, Seq(run.last_slot - run.last_serial + last)))
        return answers

    def expected(self, session: int, serial: int, decided: Seq) -> list[Answer]:
        """A leader takes nothing of a session but this serial next; 0 if it does not know the session any more.

        What is in front of that serial is on its way into the log, and answered when it is seen there.
        """
        if session != self.session:
            return []
        if serial == 0:
            return self.lose(decided)
        self.rewind(serial)
        return []

    def lose(self, decided: Seq) -> list[Answer]:
        """The session is not known any more: nobody can tell what became of its requests."""
        answers: list[Answer] = []
        while self._sent:
            sent = self._pop()
            if not sent.answered:
                answers.append(Unknown(sent.token, "the session had expired"))
        self.open(decided)
        return answers

    def _pop(self) -> _Sent:
        sent = self._sent.popleft()
        self._sent_bytes -= sent.request.size
        self._cursor = max(0, self._cursor - 1)
        return sent

    def expire(self, now: float) -> list[Answer]:
        """Answer what has waited too long."""
        answers: list[Answer] = []
        while self._asked and self._asked[0].deadline <= now:
            asked = self._asked.popleft()
            self._asked_bytes -= asked.size
            answers.append(Rejected(asked.token, "no leader took it in time"))
        for sent in self._sent:
            if sent.deadline > now:
                break
            if not sent.answered:
                answers.append(Unknown(sent.token, "not decided in time"))
                self._cancel(sent)
        return answers

    def _cancel(self, sent: _Sent) -> None:
        count = len(sent.request.updates)
        self._sent_bytes -= sent.request.size
        sent.request = sent.request._replace(updates=range(count), size=0, cancelled=True)
        sent.answered = True

    def abandon(self, reason: str) -> list[Answer]:
        """Answer everything: this node stops."""
        answers: list[Answer] = [Rejected(asked.token, reason) for asked in self._asked]
        answers += [Unknown(sent.token, reason) for sent in self._sent if not sent.answered]
        self._asked.clear()
        self._sent.clear()
        self._asked_bytes = self._sent_bytes = self._cursor = 0
        return answers
