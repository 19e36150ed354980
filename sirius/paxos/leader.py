"""The leader: what a node does while its ballot is the adopted one.

It proposes again what its scout found, all at once, and states the configuration in force: with that its reign begins,
and the log tells from where on it led. Then it gives slots to requests: as many as are there go into one value,
so batches grow with load and nothing waits for a timer while the pipeline has room.

It lives as long as the ballot: pre-empted, cut off from its majority or handing over, it is thrown away, and what
became of its proposals is found out by whoever leads next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from sirius.paxos.commander import Pipeline
from sirius.paxos.config import PaxosConfig
from sirius.paxos.members import Configuration, Member
from sirius.paxos.messages import Expected
from sirius.paxos.pulse import Pulse
from sirius.paxos.sessions import Sessions
from sirius.paxos.values import Codec, Content, Request, Value
from sirius.types import Ballot, NodeId, Seq


class Leader:
    """One reign."""

    def __init__(
        self,
        node: NodeId,
        ballot: Ballot,
        config: PaxosConfig,
        codec: Codec,
        sessions: Sessions,
        now: float,
    ) -> None:
        self.ballot = ballot
        self.pulse = Pulse(node, now)
        self._config = config
        self._codec = codec
        self._sessions = sessions
        self._taken: dict[int, int] = {}
        """The last serial of each session that this leader has proposed or is about to."""
        self._intake: deque[Request] = deque()
        self._intake_bytes = 0
        self._adopted: Value | None = None
        self._also: list[Configuration] = []
        """The configurations in it: its slots behind them were decided by their majorities, if at all."""
        self._step: Configuration | None = None
        self._alone = False
        """Whether the value under way changes the voters."""
        self.reads: deque[tuple[int, Member, int]] = deque()
        """Reads by heartbeat number: who asked, with which token."""
        self.successor: Member | None = None
        self.handing_over_since = now

    def adopt(self, values: Sequence[Value], decided: int, configuration: Configuration) -> None:
        """Take over what the scout found behind `decided`, all of it in one value. Then begin the reign."""
        self._step = configuration
        for content in map(self._codec.content, values):
            self._note(content)
            self._also += content.configurations
            self._step = content.configuration or self._step
        if values:
            self._adopted = self._codec.join(values)
        self.pipeline = Pipeline(self._config, decided + 1)
        self.adopted_last = Seq(values[-1].last if values else decided)
        """Reads have to wait until this is decided: it may have been, before this leader came."""

    def _note(self, content: Content) -> None:
        for run in content.runs:
            self._taken[run.session] = run.last_serial

    # ------------------------------------------------------------------ requests

    def take(self, request: Request) -> Expected | None:
        """Take a request, or say which one should come.

        One that was taken before is ignored, and so is one for which there is no room: it will be sent again, but not
        at once, as it would be if this were said.
        """
        if not self.has_room:
            return None
        known = self._last_serial(request)
        if known is None:
            return Expected(request.session, 0)
        if request.previous > known:
            return Expected(request.session, known + 1)
        if request.last_serial <= known:
            return None
        if request.serial <= known:
            request = request.beyond(known)
        self._taken[request.session] = request.last_serial
        self._intake.append(request)
        self._intake_bytes += request.size
        return None

    def _last_serial(self, request: Request) -> int | None:
        if (taken := self._taken.get(request.session)) is not None:
            return taken
        return self._sessions.last_serial(request.session, request.opened)

    @property
    def has_room(self) -> bool:
        """Whether one more request may wait."""
        return (
            self._intake_bytes < self._config.intake_bytes_max
            and len(self._intake) < self._config.intake_requests_max
        )

    def forget(self, decided: Content) -> None:
        """Drop sessions of which nothing is under way any more: the table of decided ones knows them just as well."""
        for run in decided.runs:
            if self._taken.get(run.session) == run.last_serial:
                del self._taken[run.session]

    # ------------------------------------------------------------------ proposing

    @property
    def held_bytes(self) -> int:
        return (
            self._intake_bytes
            + self.pipeline.bytes
            + (len(self._adopted) if self._adopted is not None else 0)
        )

    @property
    def has_adopted(self) -> bool:
        """Whether something that the scout found waits to be proposed again."""
        return self._adopted is not None

    def change(self, step: Configuration | None) -> None:
        """Propose a configuration as soon as nothing else is under way."""
        self._step = step

    @property
    def is_changing(self) -> bool:
        return self._step is not None or self._alone

    def next_value(self, now: float) -> Value | None:
        """Begin with the next value, if there is one and the pipeline has room for it."""
        if self._alone and not self.pipeline:
            self._alone = False
        if self._alone or not self.pipeline.has_room:
            return None
        also = self._also if self._adopted is not None else ()
        value = self._choose()
        if value is not None:
            self.pipeline.begin(value, now, also)
        return value

    def _choose(self) -> Value | None:
        if self._adopted is not None:
            adopted, self._adopted = self._adopted, None
            return adopted
        if self._step is not None:
            return self._choose_step()
        if self._intake and self.successor is None:
            return self._codec.encode(self.pipeline.next_slot, self._batch())
        return None

    def _choose_step(self) -> Value | None:
        if self.pipeline or self._step is None:
            return None
        self._alone = True
        step, self._step = replace(self._step, reign=self.ballot), None
        return self._codec.membership(self.pipeline.next_slot, step)

    def _batch(self) -> list[Request]:
        batch = [self._pop()]
        updates, size = len(batch[0].updates), batch[0].size
        while self._intake:
            updates += len(self._intake[0].updates)
            size += self._intake[0].size
            if updates > self._config.batch_updates_max or size > self._config.batch_bytes_max:
                break
            batch.append(self._pop())
        return batch

    def _pop(self) -> Request:
        request = self._intake.popleft()
        self._intake_bytes -= request.size
        return request
