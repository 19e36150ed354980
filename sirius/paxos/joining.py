"""How a node that is wished for becomes known: greetings, and the founding of a cluster. See `sirius.paxos.genesis`."""

from __future__ import annotations

from typing import Final

from sirius.paxos.effects import KeepNote
from sirius.paxos.genesis import Genesis
from sirius.paxos.members import Configuration, Member
from sirius.paxos.messages import Found, Hello, Welcome
from sirius.paxos.state import FOUNDED, State
from sirius.types import NodeId

_PATIENCE_S: Final = 2.0
"""How often a node that knows its cluster greets: a follower does so for ever."""


class Joining:
    """Greets those who are wished for, for as long as this node is no voter."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._genesis = Genesis(state.me)
        self._greeted_at = float("-inf")

    def tick(self) -> None:
        state = self._state
        patience_s = state.config.retry_s if state.configuration is None else _PATIENCE_S
        if state.is_voter or not state.wish or state.now - self._greeted_at < patience_s:
            return
        self._greeted_at = state.now
        self._try_to_found()
        for name in self._names():
            # Whichever life of the name is there now: that is what its answer tells.
            state.send_now(Member(NodeId(0), name), Hello(state.is_fresh))

    def _names(self) -> list[str]:
        state = self._state
        voters = state.configuration.voters if state.configuration else ()
        names = {*(state.wish or ()), *(member.name for member in voters)}
        return sorted(names - {state.me.name})

    def hello(self, sender: Member, message: Hello) -> None:
        state = self._state
        state.seen[sender.name] = sender.node
        leader = state.me if state.leader is not None else state.election.leader
        state.send_now(sender, Welcome(state.is_fresh, leader))
        founded = state.configuration if message.fresh and not state.replica.decided else None
        if founded is not None and sender in founded.voters:
            state.send(sender, Found(founded))

    def welcome(self, sender: Member, message: Welcome) -> None:
        state = self._state
        state.seen[sender.name] = sender.node
        self._genesis.heard(sender, message.fresh)
        if message.leader is not None and message.leader.name != state.me.name:
            # At second hand, and perhaps of an earlier life; what the node itself said counts for more.
            state.seen.setdefault(message.leader.name, message.leader.node)
        self._try_to_found()

    def _try_to_found(self) -> None:
        """Found the cluster, if everybody is there and it is this node's turn."""
        state = self._state
        if not state.is_fresh or state.wish is None:
            return
        configuration = self._genesis.found(state.wish, state.rng.getrandbits(63) | 1)
        if configuration is not None:
            self._take(configuration)
            for member in state.others:
                state.send(member, Found(configuration))

    def found(self, _sender: Member, message: Found) -> None:
        state = self._state
        if state.is_fresh and message.configuration.is_voter(state.me.node):
            self._take(message.configuration)

    def _take(self, configuration: Configuration) -> None:
        state = self._state
        state.persist(KeepNote(FOUNDED, configuration))
        state.cluster = configuration.cluster
        state.replica.configuration = configuration
