"""Traps of consensus: what an acceptor forgets, what a leader takes, what a member file decides."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final
from zlib import crc32

from sirius import engine, remembering
from sirius.paxos.commander import Commander, Pipeline
from sirius.paxos.config import PaxosConfig
from sirius.paxos.effects import Answer, Effects, Rejected
from sirius.paxos.leader import Leader
from sirius.paxos.leading import Leading
from sirius.paxos.machine import Machine
from sirius.paxos.members import Member
from sirius.paxos.proposer import Proposer
from sirius.paxos.running import Running
from sirius.paxos.state import Recovered, State
from sirius.paxos.values import Request
from sirius.testing.simulator.traps.trap import Patch, Trap
from sirius.types import NO_BALLOT, Ballot, NodeId
from sirius.wal.journal import Journal
from sirius.wal.journal.file import Memory

_recover: Final = remembering.recover
_start: Final = engine.Engine.__init__
_tick: Final = Machine.tick

_PRUNED_AFTER_US: Final = 1_000_000


# ---------------------------------------------------------------------- 1 to 3: forgetting


def _recover_the_log_alone(*disk: Any) -> Recovered:
    return replace(_recover(*disk), promised=NO_BALLOT, accepted=())


def _object_to_nothing(_self: Memory, _frame: Any) -> None:
    return None


def _start_under_the_old_id(self: engine.Engine, name: str, *rest: Any) -> None:
    def identity(journal: Journal, rng: random.Random) -> NodeId:  # noqa: ARG001
        return NodeId(crc32(name.encode()) | 1)

    remembering.identity = identity
    _start(self, name, *rest)


def _use_the_last_ballot_again(self: State) -> Ballot:
    last = max(self.highest, self.used)
    ballot = last if last.node == self.me.node else Ballot(last.round + 1, self.me.node)
    self.highest = self.used = ballot
    return ballot


# ---------------------------------------------------------------------- 6 to 9: taking and dropping


def _take_everything(self: Any, request: Request) -> None:
    if self.has_room:
        self._intake.append(request)
        self._intake_bytes += request.size


def _call_late_ones_failed(self: Any, now: float) -> list[Answer]:
    late = [sent for sent in self._sent if sent.deadline <= now and not sent.answered]
    answers: list[Answer] = [Rejected(sent.token, "not decided in time") for sent in late]
    for sent in late:
        self._cancel(sent)
    while self._asked and self._asked[0].deadline <= now:
        asked = self._asked.popleft()
        self._asked_bytes -= asked.size
        answers.append(Rejected(asked.token, "no leader took it in time"))
    return answers


def _drop_commanders(_self: Pipeline, _now: float, _retry_s: float) -> list[Commander]:
    return []


def _prune_by_the_time_of_day(self: Any, now: float) -> Effects:
    state = self._state
    oldest = state.codec._now_us() - _PRUNED_AFTER_US
    for span in list(state.acceptor.spans):
        if int(span.value.entries["ts"][0]) < oldest:
            state.acceptor.trim(span.last)
    return _tick(self, now)


def _obey_the_file(self: Any, now: float) -> Effects:
    state = self._state
    if (log := state.configuration) is not None and state.wish:
        lives = {member.name: member.node for member in log.members} | state.seen
        lives[state.me.name] = state.me.node
        voters = tuple(Member(lives[name], name) for name in sorted(state.wish) if name in lives)
        state.replica.configuration = replace(log, voters=voters, learners=())
    return _tick(self, now)


# ---------------------------------------------------------------------- 22 and 24: time and silence


def _lease_without_drift(config: PaxosConfig) -> float:
    return config.election_timeout_s


def _let_time_pass_in_ticks_alone(_self: engine.Engine, _now: float) -> None:
    return None


def _run_without_asking(self: Any) -> None:
    self._campaign()


def _lead_unheard(self: Any, _leader: Leader) -> bool:
    state = self._state
    return state.unable is not None or state.is_passive or state.configuration is None


def _nobody_looks(_self: Machine) -> None:
    return None


def _send_at_once(self: Any, messages: Sequence[Any]) -> None:
    if not self._failed:
        self._send(messages)


TRAPS: Final = (
    Trap(
        "1",
        "acceptor amnesia",
        "a node that starts again remembers its log, and neither its promises nor what it accepted",
        (
            Patch(remembering, "recover", _recover_the_log_alone),
            Patch(Memory, "refusal", _object_to_nothing),
        ),
    ),
    Trap(
        "2",
        "lost disk",
        "a node that lost its disk comes back under its old id, and votes with an empty memory",
        (
            Patch(engine.Engine, "__init__", _start_under_the_old_id),
            Patch(remembering, "identity", remembering.identity),
        ),
    ),
    Trap(
        "3",
        "ballot reuse",
        "a ballot is kept nowhere, and used again as long as no higher one was seen",
        (Patch(State, "new_ballot", _use_the_last_ballot_again),),
    ),
    Trap(
        "5",
        "acknowledged before persisted",
        "promises and votes leave before they are on disk",
        (Patch(engine.Engine, "_hold", _send_at_once),),
    ),
    Trap(
        "6",
        "idempotent is not commutative",
        "a leader takes every request that it gets, however often",
        (Patch(Leader, "take", _take_everything),),
    ),
    Trap(
        "7",
        "a time-out is no failure",
        "a request that was not decided in time is reported as rejected",
        (Patch(Proposer, "expire", _call_late_ones_failed),),
    ),
    Trap(
        "7b",
        "dropped commander",
        "an Accept that was lost is not sent again",
        (Patch(Pipeline, "overdue", _drop_commanders),),
    ),
    Trap(
        "8",
        "wall-clock pruning",
        "an acceptor forgets what is older than a second by the time of day",
        (Patch(Machine, "tick", _prune_by_the_time_of_day),),
    ),
    Trap(
        "9",
        "file-driven membership",
        "the voters are those in the member file, from the moment that it is read",
        (Patch(Machine, "tick", _obey_the_file),),
    ),
    Trap(
        "17",
        "hung disk",
        "a leader whose disk hangs goes on leading",
        (Patch(Machine, "_watch_disk", _nobody_looks),),
    ),
    Trap(
        "22",
        "leases",
        "a lease is as long as an election time-out, whatever the clocks do",
        (Patch(PaxosConfig, "lease_s", property(_lease_without_drift)),),
    ),
    Trap(
        "22b",
        "leases and pauses",
        "a lease is judged by the time of the last tick, and after a pause by the time before it",
        (Patch(engine.Engine, "_at", _let_time_pass_in_ticks_alone),),
    ),
    Trap(
        "24",
        "asymmetric partition",
        "no pre-vote, no check of the quorum",
        (
            Patch(Running, "_ask", _run_without_asking),
            Patch(Leading, "_must_resign", _lead_unheard),
        ),
    ),
)
