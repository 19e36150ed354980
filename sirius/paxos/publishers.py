"""Requests of publishers: clients that number their updates themselves, so that they can send them again.

A node's own session ends with its process (`.proposer`). A publisher's outlives nodes, leaders and the publisher: its
id is the publisher's own choice, its serials are given with each request, and the leader takes each serial once
(`.sessions`). So a node that passes a request on remembers it only until it is decided, or until it has waited too
long; then the publisher is told that the outcome is unknown, and may ask again here or at any other node.

Nothing has to be cancelled when a request is given up, as a node's own has: nobody but the publisher knows which serial
comes next, and it asks for the same ones again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, groupby

from sirius.paxos.config import PaxosConfig
from sirius.paxos.effects import Answer, Done, Unknown
from sirius.paxos.values import PUBLISHERS, Request, Run

_LATE = "not decided in time"


@dataclass(slots=True, eq=False)
class _Asked:
    token: int
    request: Request
    deadline: float
    trouble: str = _LATE
    """What to say if it is never decided."""


class Publishers:
    """The requests of publishers that one node passes on. Bounded like its own."""

    def __init__(self, config: PaxosConfig) -> None:
        self._config = config
        self._waiting: deque[_Asked] = deque()
        self._sent: deque[_Asked] = deque()
        self._sent_bytes = 0
        self.bytes = 0
        self.sent_at = 0.0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._sent)

    def __iter__(self) -> Iterator[_Asked]:
        return chain(self._sent, self._waiting)

    @property
    def is_waiting(self) -> bool:
        """Whether something was sent that is not decided yet."""
        return bool(self._sent)

    def has_room(self, size: int) -> bool:
        fits = self.bytes + size <= self._config.pending_bytes_max or not len(self)
        return fits and len(self) < self._config.pending_requests_max

    def ask(self, token: int, request: Request, now: float) -> None:
        """Take a request."""
        deadline = now + self._config.request_timeout_s
        self._waiting.append(_Asked(token, request, deadline))
        self.bytes += request.size

    def next_requests(self, now: float) -> list[tuple[Request, ...]]:
        """Return what to send to the leader now, in order, and those of each session together.

        A leader that cannot take one takes none that came with it, so sessions go apart from each other.
        """
        if not self._waiting:
            return []
        requests = []
        room = self._config.forward_bytes_max
        while self._waiting and (
            not self._sent or self._sent_bytes + self._waiting[0].request.size <= room
        ):
            asked = self._waiting.popleft()
            self._sent.append(asked)
            self._sent_bytes += asked.request.size
            requests.append(asked.request)
        if requests:
            self.sent_at = now
        by_session = sorted(requests, key=_session)
        return [tuple(group) for _, group in groupby(by_session, _session)]

    def rewind(self) -> None:
        """Have everything that was sent sent again."""
        self._waiting.extendleft(reversed(self._sent))
        self._sent.clear()
        self._sent_bytes = 0

    # ------------------------------------------------------------------ outcomes

    def decided(self, run: Run) -> list[Answer]:
        """Answer the requests that a decided value holds, or that an earlier one held."""
        if run.session < PUBLISHERS:
            return []
        done = [asked for asked in self if _is_in(asked.request, run)]
        for asked in done:
            self._drop(asked)
        return [Done(asked.token, run.last_slot) for asked in done]

    def _drop(self, asked: _Asked) -> None:
        if asked in self._sent:
            self._sent.remove(asked)
            self._sent_bytes -= asked.request.size
        else:
            self._waiting.remove(asked)
        self.bytes -= asked.request.size

    def expected(self, session: int, serial: int) -> None:
        """A leader has everything of a session in front of this serial, and needs what comes next.

        That goes first then, whatever order the requests came in. If it is not here, to send again at once would be to
        ask for ever: it is for the publisher to send what is missing.
        """
        pending = [asked for asked in self if asked.request.session == session]
        for asked in pending:
            if asked.request.previous < serial <= asked.request.last_serial:
                self.rewind()
                self._waiting.remove(asked)
                self._waiting.appendleft(asked)
                return
        for asked in pending:
            asked.trouble = (
                f"it cannot stand behind serial {serial - 1}, the last one of its session"
            )

    def expire(self, now: float) -> list[Answer]:
        """Answer what has waited too long."""
        late = [asked for asked in self if asked.deadline <= now]
        for asked in late:
            self._drop(asked)
        return [Unknown(asked.token, asked.trouble) for asked in late]

    def abandon(self, reason: str) -> list[Answer]:
        """Answer everything: this node stops."""
        answers: list[Answer] = [Unknown(asked.token, reason) for asked in self]
        self._sent.clear()
        self._waiting.clear()
        self._sent_bytes = self.bytes = 0
        return answers


def _session(request: Request) -> int:
    return request.session


def _is_in(request: Request, run: Run) -> bool:
    return request.session == run.session and request.last_serial <= run.last_serial
