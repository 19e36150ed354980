"""Updates with numbers: sent again, at whichever node answers, until they are acknowledged.

Nodes know a session's updates by their serials and take each once (`sirius.paxos.sessions`). So whatever goes wrong
with a stream, everything that was not acknowledged is sent again in order through another one: a time-out, a change of
the leader, a node that dies. Only what would be wrong again is raised at once.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Final, NamedTuple

from sirius.errors import (
    NodeClosed,
    OutcomeUnknown,
    Overloaded,
    RequestRejected,
    SiriusError,
    Unreachable,
    UsageError,
)
from sirius.paxos.values import PUBLISHERS, Numbers
from sirius.transport.sending import Stream
from sirius.types import Seq
from sirius.wal.block import SEQ_MAX
from sirius.wal.record import Update

_PASSING: Final = (OutcomeUnknown, Unreachable, NodeClosed, Overloaded, RequestRejected)
"""What may be over the next time. A node rejects what it has no room, no disk or no leader for."""
_PAUSE_S: Final = 0.05
_PAUSE_S_MAX: Final = 1.0


Run = tuple[int, Iterable[list[Update]]]
"""Batches whose updates have consecutive serials, and the first of these."""


class Numbered(NamedTuple):
    """A batch, and the numbers of its updates."""

    updates: list[Update]
    numbers: Numbers


def session_id(session: str) -> int:
    """Return the number of a session that is known by this name."""
    if not session:
        raise UsageError("a session needs a name")
    digest = blake2b(session.encode(), digest_size=8).digest()
    return int.from_bytes(digest) | PUBLISHERS


def numbered(runs: Iterable[Run], session: str, after: int) -> Iterator[Numbered]:
    """Give the batches of runs their numbers; each follows the one before it, the first one `after`."""
    number = session_id(session)
    for first, batches in runs:
        if not 0 <= after < first <= SEQ_MAX:
            raise UsageError(f"session {session!r} cannot have serial {first} behind {after}")
        serial = first
        for batch in batches:
            yield Numbered(batch, Numbers(number, serial, after))
            after = serial + len(batch) - 1
            serial = after + 1


class Resending:
    """Publishes numbered batches, `in_flight` at a time, over as many streams as it takes."""

    def __init__(
        self,
        open_stream: Callable[[], Stream],
        avoid: Callable[[str], None],
        in_flight: int,
        patience_s: float,
    ) -> None:
        self._open_stream = open_stream
        self._avoid = avoid
        self._in_flight = in_flight
        self._patience_s = patience_s
        self._window: deque[Numbered] = deque()
        """What is not acknowledged yet."""
        self._stream: Stream | None = None
        self._patient_until = 0.0
        self._pause_s = _PAUSE_S

    def acknowledgements(self, batches: Iterator[Numbered]) -> Iterator[tuple[int, Seq]]:
        """Yield how many updates each batch has, and where its last one is, when it is in the log."""
        self._progress()
        try:
            while self._fill(batches):
                try:
                    acknowledged = self._current().answer()
                except _PASSING as error:
                    self._try_again_after(error)
                    continue
                self._window.popleft()
                self._progress()
                yield acknowledged
        finally:
            self._close()

    def _fill(self, batches: Iterator[Numbered]) -> bool:
        """Have as many batches under way as there may be; say whether there is any."""
        while len(self._window) < self._in_flight and (batch := next(batches, None)):
            self._window.append(batch)
            if self._stream is not None:
                self._stream.send(*batch)
        return bool(self._window)

    def _current(self) -> Stream:
        if self._stream is None:
            self._stream = self._open_stream()
            for batch in self._window:
                self._stream.send(*batch)
        return self._stream

    def _progress(self) -> None:
        self._patient_until = time.monotonic() + self._patience_s
        self._pause_s = _PAUSE_S

    def _try_again_after(self, error: SiriusError) -> None:
        """Close the stream and wait a little; raise the error if there was no progress for too long."""
        if self._stream is not None:
            self._avoid(self._stream.address)
            self._close()
        if time.monotonic() + self._pause_s > self._patient_until:
            serial = self._window[0].numbers.serial
            error.add_note(
                f"everything in front of serial {serial} is in the log; it does no harm to send the rest again"
            )
            raise error
        time.sleep(self._pause_s)
        self._pause_s = min(2 * self._pause_s, _PAUSE_S_MAX)

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None
