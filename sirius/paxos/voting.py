"""A voter answers: prepares and accepts, pre-votes, heartbeats, and the decided point that comes along with them."""

from __future__ import annotations

from sirius.paxos.effects import KeepAccepted, KeepNote, KeepPromise
from sirius.paxos.members import Member
from sirius.paxos.messages import (
    Accept,
    Accepted,
    Beat,
    BeatAck,
    Decided,
    Preempted,
    Prepare,
    PreVote,
    PreVoted,
    Promise,
)
from sirius.paxos.state import ACCEPTED, State
from sirius.paxos.values import Value
from sirius.types import NO_BALLOT, Ballot


class Voting:
    """The acceptor's and follower's side of the conversation."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._early: dict[int, Accept] = {}
        """Accepts that overtook the one in front of them, all of one ballot, by their first slot."""

    @property
    def held_bytes(self) -> int:
        return sum(len(message.value) for message in self._early.values())

    # ------------------------------------------------------------------ phase 1

    def pre_vote(self, sender: Member, message: PreVote) -> None:
        state = self._state
        granted = (
            state.unable is None
            and message.decided >= state.replica.decided
            and self._hears_nobody()
        )
        answer = PreVoted(message.ballot, granted, state.replica.decided, state.highest)
        state.send_now(sender, answer)

    def _hears_nobody(self) -> bool:
        state = self._state
        return state.leader is None and state.election.is_silent(state.now)

    def prepare(self, sender: Member, message: Prepare) -> None:
        state, acceptor = self._state, self._state.acceptor
        if state.unable is not None or self._is_under_lease(message):
            return
        before = acceptor.promised
        if not acceptor.prepare(message.ballot):
            state.send_now(sender, Preempted(message.ballot, acceptor.promised))
            return
        if acceptor.promised != before:
            state.persist(KeepPromise(message.ballot))
            state.notice(message.ballot)
            state.election.rest(state.now)
        decided = state.replica.decided
        accepted = acceptor.accepted(after=max(decided, message.decided))
        state.send(sender, Promise(message.ballot, decided, acceptor.under.ballot, accepted))

    def _is_under_lease(self, message: Prepare) -> bool:
        """With leases, whoever hears a leader promises nobody else anything, unless that leader has asked for it."""
        state = self._state
        if not state.config.lease or self._hears_nobody():
            return False
        followed = max(state.acceptor.promised, state.election.ballot or NO_BALLOT)
        return message.handed_over is None or message.handed_over < followed

    # ------------------------------------------------------------------ phase 2

    def accept(self, sender: Member, message: Accept) -> None:
        state, acceptor = self._state, self._state.acceptor
        ballot = message.ballot
        if ballot < acceptor.promised:
            state.send_now(sender, Preempted(ballot, acceptor.promised))
            return
        self._follow(sender, ballot)
        if state.unable is None:
            self._accept(sender, message)
        self._catch(ballot, message.decided)

    def _accept(self, sender: Member, message: Accept) -> None:
        """Accept a value, and then those that overtook it."""
        following: Accept | None = message
        while following is not None and following.ballot == message.ballot:
            ballot, value, decided = following
            if not self._take(ballot, value, decided):
                self._keep(following)
                return
            self._state.send(sender, Accepted(ballot, value.first, value.last))
            following = self._early.pop(value.last + 1, None)

    def _keep(self, message: Accept) -> None:
        """Keep a value that came too early. Without this it would be lost until the leader repeats it."""
        early = self._early
        is_full = len(early) >= self._state.config.pipeline_accepts_max
        if is_full or any(each.ballot != message.ballot for each in early.values()):
            early.clear()
        early[message.value.first] = message

    def _take(self, ballot: Ballot, value: Value, decided: int) -> bool:
        """Accept what is not decided yet; say whether the whole may be answered."""
        state, known = self._state, self._state.replica.decided
        if value.last <= known or state.acceptor.holds(ballot, value):
            return True
        follows = state.acceptor.follows(ballot, value.first, max(decided, known))
        if not follows or not self._has_room(value):
            return False
        if value.first <= known:
            value = value.cut(known + 1, value.last)
        is_first = ballot != state.acceptor.under.ballot
        state.acceptor.accept(ballot, value)
        state.persist(KeepAccepted(ballot, value))
        if is_first:
            # It counts also when the values are trimmed. Behind the value: a crash may come in between.
            state.persist(KeepNote(ACCEPTED, state.acceptor.under))
        return True

    def _has_room(self, value: Value) -> bool:
        """Whether a value is near enough, and memory left for it; the very next one is always taken."""
        state, decided = self._state, self._state.replica.decided
        if value.first <= decided + 1:
            return True
        fits = state.acceptor.spans.bytes + len(value) <= state.config.accept_bytes_max
        return fits and value.last <= decided + state.config.accept_slots_max

    # ------------------------------------------------------------------ following

    def beat(self, sender: Member, message: Beat) -> None:
        state = self._state
        if message.ballot < state.acceptor.promised:
            state.send_now(sender, Preempted(message.ballot, state.acceptor.promised))
            return
        self._follow(sender, message.ballot)
        self._catch(message.ballot, message.decided)
        state.send_now(sender, BeatAck(message.ballot, message.number, state.replica.decided))

    def decided(self, sender: Member, message: Decided) -> None:
        if message.ballot >= self._state.acceptor.promised:
            self._follow(sender, message.ballot)
            self._catch(message.ballot, message.decided)

    def _follow(self, sender: Member, ballot: Ballot) -> None:
        """Take the sender for the leader: only an adopted ballot sends such messages."""
        state = self._state
        state.notice(ballot)
        if sender != state.me and state.election.heard(sender, ballot, state.now):
            state.rewind()

    def _catch(self, ballot: Ballot, decided: int) -> None:
        """Decide up to the leader's decided point, as far as values were accepted under its own ballot.

        Under another ballot the slot may hold another value. Those slots come by catch-up.
        """
        state, replica = self._state, self._state.replica
        replica.hear(decided)
        while replica.decided < decided:
            span = state.acceptor.spans.at(replica.decided + 1)
            if span is None or span.ballot != ballot:
                return
            first, last = replica.decided + 1, min(span.last, decided)
            state.decide(span._replace(first=first, last=last).cut)
