"""One node's consensus machine: messages, time and requests go in, effects come out.

It does nothing by itself: no clock, no disk, no network, no thread. The driver calls it, one call at a time, and does
what the effects say in their order (`sirius.paxos.effects`); the simulator does the same. See the package for the
theory.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from sirius.paxos.config import PaxosConfig
from sirius.paxos.effects import Done, Effects, ReadAt, ReadFailed, Rejected
from sirius.paxos.joining import Joining
from sirius.paxos.leading import Leading
from sirius.paxos.members import Configuration, Member
from sirius.paxos.messages import (
    Accept,
    Accepted,
    AskIndex,
    Beat,
    BeatAck,
    Decided,
    Envelope,
    Expected,
    Forward,
    Found,
    Hello,
    Message,
    Preempted,
    Prepare,
    PreVote,
    PreVoted,
    Promise,
    ReadIndex,
    TakeOver,
    Welcome,
)
from sirius.paxos.running import Running
from sirius.paxos.sessions import Sessions
from sirius.paxos.state import Recovered, State
from sirius.paxos.values import Codec, Numbers, Request, Value
from sirius.paxos.voting import Voting
from sirius.types import Ballot, Seq

_STRANGERS = (Hello, Welcome, Found)
"""Messages that a node may get from outside its cluster."""


class Machine:
    """The consensus of one node. Not thread-safe: one loop owns it."""

    def __init__(
        self,
        me: Member,
        config: PaxosConfig,
        codec: Codec,
        rng: random.Random,
        now: float,
        disk: Recovered | None = None,
    ) -> None:
        state = State.recover(me, config, codec, rng, now, disk or Recovered())
        self._state = state
        voting, running = Voting(state), Running(state)
        leading, joining = Leading(state), Joining(state)
        self._voting, self._running = voting, running
        self._leading, self._joining = leading, joining
        self._reads: dict[int, float] = {}
        self._asked_at = now
        self._syncing: deque[tuple[int, float]] = deque()
        self._acquainted_by: tuple[object, ...] = ()
        self._acquaintances: list[Member] = []
        self._handlers: dict[type[Message], Callable[[Member, Any], None]] = {
            Prepare: voting.prepare,
            Promise: running.promise,
            Accept: voting.accept,
            Accepted: leading.accepted,
            Preempted: running.preempted,
            Decided: voting.decided,
            PreVote: voting.pre_vote,
            PreVoted: running.pre_voted,
            Beat: voting.beat,
            BeatAck: leading.beat_ack,
            Forward: leading.forward,
            Expected: self._expected,
            AskIndex: leading.ask_index,
            ReadIndex: self._read_index,
            TakeOver: running.take_over,
            Hello: joining.hello,
            Welcome: joining.welcome,
            Found: joining.found,
        }

    # ------------------------------------------------------------------ what it knows

    @property
    def me(self) -> Member:
        return self._state.me

    @property
    def decided(self) -> Seq:
        """Everything up to here is decided and was handed out."""
        return self._state.replica.decided

    @property
    def known(self) -> Seq:
        """The highest slot of which this node has heard that it is decided. Above `decided`, it should catch up."""
        return self._state.replica.known

    @property
    def configuration(self) -> Configuration | None:
        return self._state.configuration

    @property
    def cluster(self) -> int:
        return self._state.cluster

    @property
    def leader(self) -> Member | None:
        """Who leads, as far as this node knows."""
        return self._state.me if self.is_leader else self._state.election.leader

    @property
    def is_leader(self) -> bool:
        return self._state.leader is not None

    @property
    def is_in_touch(self) -> bool:
        """Whether this node leads, or has heard of its leader within an election time-out."""
        state = self._state
        if state.leader is not None:
            return True
        return state.election.leader is not None and not state.election.is_silent(state.now)

    @property
    def is_settled(self) -> bool:
        """Whether the leader that this node hears has decided everything that earlier ones have begun with.

        The last thing in it is a configuration that bears the leader's ballot.
        """
        configuration, ballot = self._state.configuration, self._state.election.ballot
        return configuration is not None and configuration.reign == ballot

    @property
    def is_voter(self) -> bool:
        return self._state.is_voter

    @property
    def ballot(self) -> Ballot:
        """The highest ballot promised."""
        return self._state.acceptor.promised

    @property
    def held_bytes(self) -> int:
        """Memory held for values and requests that are not done with."""
        state = self._state
        leader = state.leader.held_bytes if state.leader else 0
        accepted = state.acceptor.spans.bytes + self._voting.held_bytes
        return accepted + state.proposer.bytes + state.publishers.bytes + leader

    @property
    def repeated_accepts(self) -> int:
        """How often a value was sent again since the start, because a majority did not answer in time."""
        return self._state.repeated

    @property
    def acquaintances(self) -> list[Member]:
        """The voters, as the log names them and as they greeted, the others that are wished for, and the leader."""
        state = self._state
        known_by = (state.configuration, state.wish, state.election.leader, *state.seen.items())
        if known_by != self._acquainted_by:
            # It is asked for at every tick, and hardly ever another one.
            self._acquainted_by, self._acquaintances = known_by, self._get_acquainted()
        return self._acquaintances

    def _get_acquainted(self) -> list[Member]:
        state = self._state
        voters = state.configuration.voters if state.configuration else ()
        named = {*(state.wish or ()), *(member.name for member in voters)}
        known = {Member(node, name) for name, node in state.seen.items() if name in named}
        if state.election.leader is not None:
            # A learner that knows no configuration yet may be wished for alone.
            known.add(state.election.leader)
        return sorted(known.union(voters) - {state.me})

    def envelope(self, to: Member, message: Any) -> Envelope:
        """Put a message into its envelope."""
        configuration = self._state.configuration
        number = configuration.number if configuration else 0
        return Envelope(self._state.cluster, number, self._state.me, to.node, message)

    # ------------------------------------------------------------------ what goes in

    def step(self, envelope: Envelope) -> Effects:
        """Take a message."""
        if self.admits(envelope):
            if envelope.cluster not in (0, self._state.cluster):
                self._joining.belongs_elsewhere(envelope.sender)
            self._handlers[type(envelope.message)](envelope.sender, envelope.message)
            self._pump()
        return self._effects()

    def admits(self, envelope: Envelope) -> bool:
        """Say whether a message is for this life of the node and from its cluster."""
        state = self._state
        if envelope.to not in (0, state.me.node):
            return False
        if envelope.cluster == state.cluster or isinstance(envelope.message, _STRANGERS):
            return True
        if not state.cluster and not state.replica.decided and envelope.to == state.me.node:
            # Whoever knows this life of the disk has it from a configuration, so this node belongs there.
            state.join(envelope.cluster)
            return True
        return False

    def admitted(self) -> Effects:
        """Return what `admits` asks for: a node notes which cluster it belongs to."""
        return self._effects()

    def at(self, now: float) -> None:
        """Say what time it is, before any call but `tick`: a message may come long after the last one."""
        self._state.now = max(self._state.now, now)

    def tick(self, now: float) -> Effects:
        """Let time pass, and do what is due. Call it a few times per heartbeat."""
        state = self._state
        self.at(now)
        self._watch_disk()
        self._leading.tick()
        self._running.tick()
        self._joining.tick()
        state.out.answers += state.proposer.expire(now)
        state.out.answers += state.publishers.expire(now)
        self._expire_reads()
        for sender in (state.proposer, state.publishers):
            if sender.is_waiting and now - sender.sent_at >= state.config.retry_s:
                sender.rewind()
        self._pump()
        return self._effects()

    def propose(
        self, token: int, updates: Sequence[Any], size: int, numbers: Numbers | None = None
    ) -> Effects:
        """Have updates decided, all together and in this order; `token` comes back in the answer.

        With `numbers` they are a publisher's. Those that are decided already are answered with the sequence number of
        the last one, or of one that its session put into the log later.
        """
        state = self._state
        if state.is_passive:
            state.out.answers.append(
                Rejected(token, "the member list is empty: this node is passive")
            )
        elif not updates:
            state.out.answers.append(Rejected(token, "there is nothing to decide"))
        elif numbers is not None:
            self._publish(token, Request(*numbers[:2], Seq(0), updates, size, after=numbers.after))
        elif not state.proposer.has_room(size):
            state.out.answers.append(Rejected(token, "too many requests are waiting"))
        else:
            state.proposer.ask(token, updates, size, state.now)
            self._pump()
        return self._effects()

    def _publish(self, token: int, request: Request) -> None:
        state = self._state
        known = state.replica.sessions.publisher(request.session)
        if known is not None and known.last_serial >= request.last_serial:
            state.out.answers.append(Done(token, known.last_slot))
        elif not state.publishers.has_room(request.size):
            state.out.answers.append(Rejected(token, "too many requests are waiting"))
        else:
            state.publishers.ask(token, request, state.now)
            self._pump()

    def read(self, token: int) -> Effects:
        """Ask from where on a read is up to date."""
        state = self._state
        if len(self._reads) >= state.config.reads_max:
            state.out.answers.append(ReadFailed(token, "too many reads are waiting"))
        else:
            self._reads[token] = state.now + state.config.request_timeout_s
            self._ask_index(token)
        return self._effects()

    def _ask_index(self, token: int) -> None:
        state = self._state
        if state.leader is not None:
            self._leading.ask_index(state.me, AskIndex(token))
        elif state.election.leader is not None:
            state.send_now(state.election.leader, AskIndex(token))

    def holds_lease(self, now: float) -> bool:
        """Say whether nobody else leads at `now`. To be asked once more when a read by lease is done."""
        self.at(now)
        return self._leading.holds_lease

    def learn(self, values: Sequence[Value]) -> Effects:
        """Take decided values that catch-up brought: proven ranges, the first of which begins by the first unknown."""
        state = self._state
        for value in values:
            if value.last > state.replica.decided:
                if state.leader is not None:
                    # Only somebody else can have decided what this leader has not.
                    state.resign()
                state.decide(value.cut(max(value.first, state.replica.decided + 1), value.last))
        self._running.try_to_lead()
        self._pump()
        return self._effects()

    def resynced(
        self, decided: Seq, configuration: Configuration | None, sessions: Sessions
    ) -> Effects:
        """The log was taken anew, whole, from somebody else: it ends at `decided`, and says who votes there, and
        whose requests took effect."""
        state = self._state
        state.resign()
        state.replica.jump(decided, configuration, sessions)
        state.out.answers += state.proposer.lose(decided)
        self._pump()
        return self._effects()

    def installed(
        self, first: Seq, decided: Seq, configuration: Configuration | None, sessions: Sessions
    ) -> Effects:
        """The log has got a segment from `first` to `decided` that catch-up brought, with this in it.

        A jump like that of `resynced`, but nothing of what was here is gone: a scout goes on.
        """
        state = self._state
        if decided > state.replica.decided:
            if state.leader is not None:
                # As in `learn`: only somebody else can have decided what this leader has not.
                state.resign()
            known = state.replica.sessions
            known.extend(first, sessions)
            state.replica.jump(decided, configuration, known)
            state.out.answers += state.proposer.lose(decided)
        self._running.try_to_lead()
        self._pump()
        return self._effects()

    def persisted(self, ticket: int) -> None:
        """What the calls up to this ticket asked to be persisted is on disk."""
        while self._syncing and self._syncing[0][0] <= ticket:
            self._syncing.popleft()

    def stored(self, seq: Seq) -> None:
        """The log has everything up to here on disk: the acceptor need not keep it."""
        state = self._state
        state.acceptor.trim(seq)
        if seq >= state.trimmed + state.config.trim_slots_min:
            state.trimmed = state.trim_due = seq

    def wish(self, names: Sequence[str] | None) -> Effects:
        """Say which names should vote. An empty list makes this node passive; nothing is forgotten."""
        self._state.wish = None if names is None else tuple(dict.fromkeys(names))
        return self.tick(self._state.now)

    def hand_over(self, to: Member | None = None) -> Effects:
        """Hand the leadership over, to a given voter or to the one that is furthest."""
        self._leading.hand_over(to)
        self._pump()
        return self._effects()

    def disable(self, reason: str | None) -> Effects:
        """Neither vote nor lead for as long as there is a reason: no room on disk, a sync that failed."""
        self._state.unable = reason
        if reason is not None:
            self._state.resign()
        return self._effects()

    def stop(self, reason: str) -> Effects:
        """Answer everybody who waits. The machine is of no use afterwards."""
        state = self._state
        state.out.answers += state.proposer.abandon(reason)
        state.out.answers += state.publishers.abandon(reason)
        state.out.answers += [ReadFailed(token, reason) for token in self._reads]
        self._reads.clear()
        return self._effects()

    # ------------------------------------------------------------------ inside

    def _effects(self) -> Effects:
        state = self._state
        out, state.out = state.out, Effects()
        if out.persist:
            state.tickets += 1
            out.ticket = state.tickets
            self._syncing.append((out.ticket, state.now))
        for answer in out.answers:
            if isinstance(answer, ReadAt | ReadFailed):
                self._reads.pop(answer.token, None)
        return out

    def _pump(self) -> None:
        """Send requests to whoever leads, and propose what came in."""
        state = self._state
        if state.leader is not None:
            if state.leader.has_room:
                self._leading.take(state.proposer.next_requests(state.now))
                for session in state.publishers.next_requests(state.now):
                    self._leading.take(session)
            self._leading.propose()
        elif state.election.leader is not None:
            requests = state.proposer.next_requests(state.now)
            if requests:
                state.send_now(state.election.leader, Forward(tuple(requests)))
            for session in state.publishers.next_requests(state.now):
                state.send_now(state.election.leader, Forward(session))

    def _expected(self, _sender: Member, message: Expected) -> None:
        self._state.expected(*message)

    def _read_index(self, _sender: Member, message: ReadIndex) -> None:
        if message.token in self._reads:
            self._state.out.answers.append(ReadAt(message.token, message.slot))

    def _expire_reads(self) -> None:
        """Give up reads that have waited too long, and ask for the others again now and then."""
        now = self._state.now
        for token, deadline in list(self._reads.items()):
            if deadline > now:
                break
            self._state.out.answers.append(ReadFailed(token, "no leader answered in time"))
            del self._reads[token]
        if self._reads and now - self._asked_at >= self._state.config.retry_s:
            self._asked_at = now
            for token in self._reads:
                self._ask_index(token)

    def _watch_disk(self) -> None:
        """A leader whose disk hangs steps down: a sync that takes longer than an election is none."""
        state = self._state
        if self._syncing and state.now - self._syncing[0][1] >= state.config.election_timeout_s:
            state.resign()
