"""How a node that is wished for becomes known: greetings, and the founding of a cluster. See `sirius.paxos.genesis`."""

from __future__ import annotations

from typing import Final

from sirius.paxos.effects import KeepNote
from sirius.paxos.genesis import Genesis
from sirius.paxos.members import Configuration, Member
from sirius.paxos.messages import Found, Hello, Welcome
from sirius.paxos.state import FOUNDED, State
from sirius.types import NO_BALLOT, NodeId

_PATIENCE_S: Final = 2.0
"""How often a node that knows its cluster greets: a follower does so for ever."""


class Joining:
    """Greets those who are wished for, for as long as this node is no voter; and as a leader, those who are missing."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._genesis = Genesis(state.me)
        self._started = state.now
        self._greeted_at = float("-inf")
        self._is_wanted = False
        self._founding: Configuration | None = None
        """The configuration that this node has drawn. Nobody hears of it before it is on disk here."""

    @property
    def _is_free(self) -> bool:
        """Whether this node may take part in founding a cluster."""
        return self._state.is_fresh and not self._is_wanted

    @property
    def _may_found(self) -> bool:
        """Whether this node may found a cluster: with others if its disk is empty, alone also with a log that was never
        a cluster's: it was imported, or its operator says so."""
        state = self._state
        belongs = self._is_wanted or state.cluster or state.configuration is not None
        if belongs or state.acceptor.promised != NO_BALLOT:
            return False
        return not state.replica.decided or state.wish == (state.me.name,)

    def tick(self) -> None:
        state = self._state
        leads = state.leader is not None
        is_idle = state.configuration and not leads and not len(state.proposer)
        patience_s = _PATIENCE_S if is_idle else state.config.retry_s
        if not state.wish or state.now - self._greeted_at < patience_s:
            return
        self._greeted_at = state.now
        self._try_to_found()
        for name in self._unknown() if leads else self._others():
            # Whichever life of the name is there now: that is what its answer tells.
            state.send_now(Member(NodeId(0), name), Hello(self._is_free, wanted=leads))

    def _others(self) -> list[str]:
        """Whom a node greets that is no voter, or a voter of a cluster that has not begun."""
        state = self._state
        if state.is_voter and not state.is_founding:
            return []
        voters = state.configuration.voters if state.configuration else ()
        names = {*(state.wish or ()), *(member.name for member in voters)}
        return sorted(names - {state.me.name})

    def _unknown(self) -> list[str]:
        """Whom a leader greets: who is wished for and not there yet. It must not found a cluster of its own."""
        state = self._state
        members = state.configuration.members if state.configuration else ()
        return sorted({*(state.wish or ())} - {member.name for member in members})

    def hello(self, sender: Member, message: Hello) -> None:
        state = self._state
        state.has_seen(sender)
        self._is_wanted = self._is_wanted or message.wanted
        leader = state.me if state.leader is not None else state.election.leader
        state.send_now(sender, Welcome(self._is_free, leader))
        founded = state.configuration if message.fresh and not state.replica.decided else None
        if founded is not None and sender in founded.voters:
            state.send(sender, Found(founded))

    def welcome(self, sender: Member, message: Welcome) -> None:
        state = self._state
        state.has_seen(sender)
        self._genesis.heard(sender, message.fresh)
        if message.leader is not None and message.leader.name != state.me.name:
            # At second hand, and perhaps of an earlier life; what the node itself said counts for more.
            if message.leader.name not in state.seen:
                state.has_seen(message.leader)
            self._turn_to(message.leader)
        self._try_to_found()

    def _turn_to(self, leader: Member) -> None:
        """Send requests to a leader that others follow. Who votes hears of it from the leader itself."""
        state = self._state
        if not state.is_voter and state.election.is_silent(state.now):
            state.election.leader = leader

    def _try_to_found(self) -> None:
        """Found the cluster, if everybody is there, it is this node's turn, and nobody has come to fetch it."""
        state = self._state
        if not self._may_found or not state.wish or self._founding is not None:
            return
        if state.now - self._started < state.config.election_timeout_s:
            return
        self._founding = self._genesis.found(state.wish, state.rng.getrandbits(63) | 1)
        if self._founding is not None:
            state.persist(KeepNote(FOUNDED, self._founding))
            for member in self._founding.voters:
                state.send(member, Found(self._founding))

    def found(self, _sender: Member, message: Found) -> None:
        state, configuration = self._state, message.configuration
        if configuration == self._founding:
            state.found(configuration)
        elif self._is_free and configuration.is_voter(state.me.node):
            state.persist(KeepNote(FOUNDED, configuration))
            state.found(configuration)

    def belongs_elsewhere(self, sender: Member) -> None:
        """A node belongs to another cluster. If the founding of this one counts on it, nothing comes of that: the first
        leader would need the promises of all (`Running`)."""
        state = self._state
        if not state.is_founding or len(state.acceptor.spans):
            return
        if state.configuration is not None and sender in state.configuration.voters:
            self._founding = None
            state.leave()
