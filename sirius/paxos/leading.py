"""A leader's conversation: proposing, counting votes, heartbeats, reads, handing over, and changing the members."""

from __future__ import annotations

from collections.abc import Sequence

from sirius.paxos.commander import Commander
from sirius.paxos.effects import Answer, ReadAt
from sirius.paxos.leader import Leader
from sirius.paxos.members import Configuration, Member, next_step
from sirius.paxos.messages import (
    Accept,
    Accepted,
    AskIndex,
    Beat,
    BeatAck,
    Decided,
    Forward,
    ReadIndex,
    TakeOver,
)
from sirius.paxos.state import State
from sirius.paxos.values import Request
from sirius.types import NodeId


class Leading:
    """What a node does while it leads. Without a reign every call does nothing."""

    def __init__(self, state: State) -> None:
        self._state = state

    # ------------------------------------------------------------------ proposing

    def forward(self, sender: Member, message: Forward) -> None:
        """Take requests that another node sent; on the first one that cannot be taken, say which should come."""
        if self._state.leader is not None:
            for request in message.requests:
                answer = self._state.leader.take(request)
                if answer is not None:
                    self._state.send_now(sender, answer)
                    return

    def take(self, requests: Sequence[Request]) -> None:
        """Take this node's own requests, or those that it passes on of one publisher."""
        state = self._state
        for request in requests:
            if state.leader is not None and (answer := state.leader.take(request)) is not None:
                state.expected(*answer)
                return

    def propose(self) -> None:
        """Begin with as many values as the pipeline takes."""
        state, leader = self._state, self._state.leader
        while leader is not None and leader.next_value(state.now) is not None:
            self._command(leader, leader.pipeline.newest)

    def accepted(self, sender: Member, message: Accepted) -> None:
        leader = self._state.leader
        if leader is not None and message.ballot == leader.ballot:
            leader.pulse.heard(sender.node, self._state.now)
            leader.pipeline.vote(sender.node, message.first, message.last)
            self._decide(leader)

    def _decide(self, leader: Leader) -> None:
        state, before = self._state, self._state.replica.decided
        while state.leader is leader and state.configuration is not None:
            value = leader.pipeline.pop_decided(state.configuration)
            if value is None:
                break
            leader.forget(state.decide(value))
        if state.replica.decided > before:
            self._spread(leader)

    def _spread(self, leader: Leader) -> None:
        """Tell the decided point: with the next Accept if there is one, in a message of its own otherwise."""
        state = self._state
        self.propose()
        if not leader.pipeline and leader.successor is not None:
            self._beat(leader)  # the answer says whether the successor knows everything
        elif not leader.pipeline:
            state.tell_others(Decided(leader.ballot, state.replica.decided))
        self._answer_reads(leader)

    def _command(self, leader: Leader, commander: Commander) -> None:
        """Send an Accept to everybody who has not voted: the voters, and those of configurations on their way."""
        state = self._state
        accept = Accept(leader.ballot, commander.value, state.replica.decided)
        voters = [*state.others, state.me]
        for configuration in commander.also:
            voters += [member for member in configuration.voters if member not in voters]
        for member in voters:
            if member.node not in commander.votes:
                state.send_now(member, accept)

    # ------------------------------------------------------------------ time

    def tick(self) -> None:
        state, leader = self._state, self._state.leader
        if leader is None:
            return
        if self._must_resign(leader):
            state.resign()
            return
        for commander in leader.pipeline.overdue(state.now, state.config.retry_s):
            state.repeated += 1
            self._command(leader, commander)
        if state.now - leader.pulse.sent_at >= state.config.heartbeat_s:
            self._beat(leader)
            self._reconcile(leader)
        self._hand_over(leader)
        self.propose()

    def _must_resign(self, leader: Leader) -> bool:
        state = self._state
        if state.unable is not None or state.is_passive or state.configuration is None:
            return True
        since = state.now - state.config.election_timeout_s
        return not leader.pulse.has_quorum(state.configuration, since)

    # ------------------------------------------------------------------ heartbeats and reads

    def _beat(self, leader: Leader) -> None:
        state = self._state
        number = leader.pulse.beat(state.now)
        state.election.heard_at = state.now
        state.tell_others(Beat(leader.ballot, number, state.replica.decided))
        self._answer_reads(leader)

    def beat_ack(self, sender: Member, message: BeatAck) -> None:
        state, leader = self._state, self._state.leader
        if leader is not None and message.ballot == leader.ballot:
            leader.pulse.acked(sender.node, message.number, message.decided, state.now)
            self._hand_over(leader)
            self._answer_reads(leader)

    def ask_index(self, sender: Member, message: AskIndex) -> None:
        """Note a read; a heartbeat that is sent from now on must be answered by a majority before it is."""
        state, leader = self._state, self._state.leader
        if leader is None or len(leader.reads) >= state.config.reads_max:
            return
        if self.holds_lease:
            self._answer(sender, message.token)
            return
        leader.reads.append((leader.pulse.number + 1, sender, message.token))
        self._beat_for_reads(leader)

    def _beat_for_reads(self, leader: Leader) -> None:
        """Send a heartbeat at once, unless one is on its way: then the reads that came since share the next."""
        configuration = self._state.configuration
        if configuration and leader.pulse.confirmed(configuration) == leader.pulse.number:
            self._beat(leader)

    def _answer_reads(self, leader: Leader) -> None:
        configuration = self._state.configuration
        confirmed = leader.pulse.confirmed(configuration) if configuration else 0
        if not self._has_taken_over(leader):
            return
        while leader.reads and leader.reads[0][0] <= confirmed:
            _, member, token = leader.reads.popleft()
            self._answer(member, token)
        if leader.reads and leader.reads[0][0] > leader.pulse.number:
            self._beat_for_reads(leader)

    def _has_taken_over(self, leader: Leader) -> bool:
        return self._state.replica.decided >= leader.adopted_last

    def _answer(self, member: Member, token: int) -> None:
        state = self._state
        if member == state.me:
            answer: Answer = ReadAt(token, state.replica.decided)
            state.out.answers.append(answer)
        else:
            state.send_now(member, ReadIndex(token, state.replica.decided))

    @property
    def holds_lease(self) -> bool:
        """Whether nobody else can lead at this moment, if clocks run as they should."""
        state, leader = self._state, self._state.leader
        if leader is None or not state.config.lease or leader.successor is not None:
            return False
        if state.configuration is None or not self._has_taken_over(leader):
            return False
        return state.now < leader.pulse.lease_until(state.configuration, state.config.lease_s)

    # ------------------------------------------------------------------ handing over

    def hand_over(self, to: Member | None = None) -> bool:
        """Begin to hand over, to a given voter or the one that is furthest; say whether there is one."""
        state, leader = self._state, self._state.leader
        if leader is None:
            return False
        alive = leader.pulse.alive(state.now - state.config.election_timeout_s)
        able = [each for each in state.others if each.node in alive and to in (None, each)]
        if not able:
            return False
        leader.successor = max(able, key=lambda each: leader.pulse.decided.get(each.node, 0))
        leader.handing_over_since = state.now
        self._beat(leader)
        return True

    def _hand_over(self, leader: Leader) -> None:
        """Once the successor knows everything, let it lead. From then on this node does not."""
        state, successor = self._state, leader.successor
        if successor is None:
            return
        level = leader.pulse.decided.get(successor.node) == state.replica.decided
        if level and not leader.pipeline and not leader.has_adopted:
            state.send_now(successor, TakeOver(leader.ballot))
            state.resign()
        elif state.now - leader.handing_over_since >= state.config.election_timeout_s:
            leader.successor = None

    # ------------------------------------------------------------------ members

    def _reconcile(self, leader: Leader) -> None:
        """Take one step towards the wished voters."""
        state, now = self._state, self._state.configuration
        if now is None or leader.is_changing or leader.has_adopted or not state.wish:
            return
        step = next_step(now, state.wish, state.seen, self._level(leader), state.me.node)
        leader.change(step)
        if step is None and self._is_last_to_go(now) and leader.successor is None:
            self.hand_over()

    def _is_last_to_go(self, now: Configuration) -> bool:
        """Whether all that is left to do is to take out this node."""
        wish, me = self._state.wish or (), self._state.me
        wished = [member for member in now.voters if member.name in wish]
        seen = self._state.seen.get(me.name, me.node)
        return bool(wished) and (me.name not in wish or seen != me.node)

    def _level(self, leader: Leader) -> set[NodeId]:
        """Return who is alive and not far behind."""
        state = self._state
        enough = state.replica.decided - state.config.level_slots
        alive = leader.pulse.alive(state.now - state.config.election_timeout_s)
        behind = {node for node, decided in leader.pulse.decided.items() if decided < enough}
        return alive - behind
