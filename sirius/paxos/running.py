"""A node runs for leader: it asks whether it would be elected, and then prepares a ballot."""

from __future__ import annotations

from itertools import chain

from sirius.paxos.leader import Leader
from sirius.paxos.members import Configuration, Member
from sirius.paxos.messages import (
    Preempted,
    Prepare,
    PreVote,
    PreVoted,
    Promise,
    TakeOver,
)
from sirius.paxos.scout import Scout
from sirius.paxos.state import State
from sirius.paxos.values import Value
from sirius.types import Ballot


class Running:
    """The candidate's side of the conversation."""

    def __init__(self, state: State) -> None:
        self._state = state

    @property
    def _may_run(self) -> bool:
        state = self._state
        return state.is_voter and not state.is_passive and state.unable is None

    def tick(self) -> None:
        state = self._state
        if state.leader is not None:
            return
        if state.scout is not None:
            self._tick_scout(state.scout)
        elif self._may_run and (state.election.is_due(state.now) or not state.others):
            # Who votes alone has nobody to wait for.
            self._ask()

    # ------------------------------------------------------------------ pre-vote

    def _ask(self) -> None:
        state = self._state
        ballot = Ballot(state.highest.round + 1, state.me.node)
        state.election.ask(ballot, state.now)
        for member in state.others:
            state.send_now(member, PreVote(ballot, state.replica.decided))
        self._granted(state.me, ballot)

    def pre_voted(self, sender: Member, message: PreVoted) -> None:
        state = self._state
        state.replica.hear(message.decided)
        state.highest = max(state.highest, message.highest)
        if message.granted:
            self._granted(sender, message.ballot)

    def _granted(self, member: Member, ballot: Ballot) -> None:
        state = self._state
        if state.configuration is None or not self._may_run:
            return
        if state.election.granted(member.node, ballot, state.configuration):
            self._campaign()

    # ------------------------------------------------------------------ phase 1

    def take_over(self, _sender: Member, message: TakeOver) -> None:
        state = self._state
        idle = state.leader is None and state.scout is None
        if idle and self._may_run and message.ballot >= state.acceptor.promised:
            self._campaign(handed_over=message.ballot)

    def _campaign(self, handed_over: Ballot | None = None) -> None:
        state = self._state
        state.election.ask(state.new_ballot(), state.now)
        state.election.asking = None
        state.scout = Scout(state.used, state.now, handed_over)
        self._prepare(state.scout)

    def _prepare(self, scout: Scout) -> None:
        """Ask everybody who has not promised yet, once the ballot is on disk.

        Oneself at once: the ballot and the promise go to the disk together, and the promise waits for both.
        """
        state = self._state
        message = Prepare(scout.ballot, state.replica.decided, scout.handed_over)
        asked = {member for each in self._missing(scout) for member in each.voters}
        for member in sorted(asked):
            if member.node not in scout.promises:
                send = state.send_now if member == state.me else state.send
                send(member, message)

    def _missing(self, scout: Scout) -> list[Configuration]:
        """Return the configurations of which not enough have promised yet."""
        state = self._state
        contents = map(state.codec.content, scout.adopted(state.replica.decided))
        found = chain.from_iterable(content.configurations for content in contents)
        wanted = [state.configuration, *found]
        return [each for each in wanted if each and not self._is_enough(each, scout)]

    def _is_enough(self, configuration: Configuration, scout: Scout) -> bool:
        """Say whether a majority has promised; everybody, as long as nobody knows that the cluster has begun.

        A voter may have been counted on that belongs to another cluster, and then this one must not begin. Who has
        accepted something knows that somebody had all promises. A voter whose name is another disk's by now is gone.
        """
        if not configuration.is_quorum(scout.promises):
            return False
        if not self._state.is_founding or scout.has_begun:
            return True
        seen = self._state.seen
        return all(
            node in scout.promises or seen.get(name, node) != node
            for node, name in configuration.voters
        )

    def promise(self, sender: Member, message: Promise) -> None:
        state, scout = self._state, self._state.scout
        if scout is None or message.ballot != scout.ballot:
            return
        state.replica.hear(message.decided)
        before = self._missing(scout)
        scout.promised(sender.node, message)
        if self._missing(scout)[:1] != before[:1]:
            self._prepare(scout)
        self.try_to_lead()

    def preempted(self, _sender: Member, message: Preempted) -> None:
        self._state.notice(message.promised)

    def _tick_scout(self, scout: Scout) -> None:
        state = self._state
        if state.now - scout.started >= 2 * state.config.election_timeout_s or not self._may_run:
            state.resign()
        elif state.now - scout.sent_at >= state.config.retry_s:
            scout.sent_at = state.now
            self._prepare(scout)
        else:
            self.try_to_lead()

    def try_to_lead(self) -> None:
        """Lead, if the ballot is adopted and everything that is decided is known. At most once a ballot."""
        state, scout = self._state, self._state.scout
        if scout is None or state.configuration is None:
            return
        decided = state.replica.decided
        if decided < scout.decided or self._missing(scout):
            return
        adopted = scout.adopted(decided)
        if adopted and adopted[-1].last - decided > sum(map(_slots, adopted)):
            # Somebody knows a slot to be decided that nobody who promised has: it has to be fetched.
            state.replica.hear(adopted[0].first - 1)
            return
        state.scout = None
        state.leader = Leader(
            state.me.node,
            scout.ballot,
            state.config,
            state.codec,
            state.replica.sessions,
            state.now,
        )
        state.leader.adopt(adopted, decided, state.configuration)
        state.election.heard(state.me, scout.ballot, state.now)
        state.rewind()


def _slots(value: Value) -> int:
    return value.last - value.first + 1
