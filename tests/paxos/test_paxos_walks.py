"""Random walks over three, five and changing members; and the same things as the rules of a state machine."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sirius.paxos import PaxosConfig
from sirius.paxos.values import PUBLISHERS
from tests.paxos.timing import timed
from tests.paxos.walk import Walk

SOAK = bool(os.environ.get("SIRIUS_SOAK"))
LEASES = timed(lease=True)
SMALL = timed(
    batch_updates_max=2,
    pipeline_accepts_max=2,
    intake_requests_max=3,
    pending_requests_max=6,
    sessions_max=20,
    trim_slots_min=4,
    accept_slots_max=8,
)


def walk(
    seed: int,
    names: str,
    spare: str,
    config: PaxosConfig,
    steps: int = 2000,
    *,
    publishers: bool = False,
) -> Walk:
    path = Walk(seed, names, spare=spare, config=config, publishers=publishers)
    path.run(steps)
    path.finish()
    return path


@pytest.mark.parametrize("seed", range(20))
def test_three_nodes_agree_whatever_happens(seed: int) -> None:
    walk(seed, "abc", "", timed())


@pytest.mark.parametrize("seed", range(20))
def test_five_nodes_agree_whatever_happens(seed: int) -> None:
    walk(seed, "abcde", "", timed())


@pytest.mark.parametrize("seed", range(20))
def test_nodes_agree_while_members_come_and_go_and_lose_their_disks(seed: int) -> None:
    walk(seed, "abc", "de", timed())


@pytest.mark.parametrize("seed", range(20))
def test_nodes_agree_with_leases_and_no_read_is_stale(seed: int) -> None:
    walk(seed, "abc", "", LEASES)


@pytest.mark.parametrize("seed", range(20))
def test_nodes_agree_when_every_bound_is_tight(seed: int) -> None:
    walk(seed, "abc", "de", SMALL)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("config", [timed(), SMALL], ids=["plain", "small"])
def test_what_publishers_send_again_and_again_takes_effect_once(
    seed: int, config: PaxosConfig
) -> None:
    """The judge knows every serial; publishers cut what they send into other portions each time."""
    walk(seed, "abc", "de" if seed % 2 else "", config, publishers=True)


def test_no_part_of_one_leaders_proposal_is_found_behind_another_leaders() -> None:
    """Here a scout once took slot 17 from one ballot and the rest of a request, from slot 18 on, from another."""
    walk(1015, "abc", "", SMALL, steps=4000)


@pytest.mark.deep
@pytest.mark.parametrize("names", ["abc", "abcde", "abc de"])
@pytest.mark.parametrize("config", [timed(), LEASES, SMALL], ids=["plain", "leases", "small"])
def test_many_walks(names: str, config: PaxosConfig) -> None:
    voters, _, spare = names.partition(" ")
    for seed in range(1000, 8500 if SOAK else 1030):
        walk(seed, voters, spare, config, steps=4000)


def test_walks_get_somewhere() -> None:
    """A walk without writes proves nothing."""
    walks = [walk(seed, "abc", "", timed()) for seed in range(10)]
    assert sum(each.acknowledged for each in walks) > 500


def test_publishers_get_somewhere() -> None:
    walks = [walk(seed, "abc", "", timed(), publishers=True) for seed in range(10)]
    sessions = range(PUBLISHERS, PUBLISHERS + 3)
    assert sum(each.cluster.judge.serials(s) for each in walks for s in sessions) > 100


class AnyOrder(RuleBasedStateMachine):
    """Hypothesis takes the steps, so that a failure shrinks to the few that matter."""

    @initialize(names=st.sampled_from(["abc", "abcde"]), leads=st.booleans())
    def begin(self, names: str, leads: bool) -> None:
        self.walk = Walk(0, names)
        if leads:
            self.walk.cluster.elect("a")

    @rule(at=st.integers(0, 20))
    def deliver(self, at: int) -> None:
        if self.walk.cluster.wire:
            self.walk._take(at % len(self.walk.cluster.wire))

    @rule(count=st.integers(1, 20))
    def deliver_some(self, count: int) -> None:
        for _ in range(count):
            self.walk.deliver_first()

    @rule()
    def sync_all(self) -> None:
        self.walk.cluster.sync()

    @rule(at=st.integers(0, 20))
    def lose(self, at: int) -> None:
        if self.walk.cluster.wire:
            del self.walk.cluster.wire[at % len(self.walk.cluster.wire)]

    @rule()
    def double(self) -> None:
        self.walk.double()

    @rule(name=st.sampled_from("abc"), count=st.integers(1, 3))
    def propose(self, name: str, count: int) -> None:
        if name in self.walk.cluster.up:
            self.walk.tokens += 1
            texts = [f"{self.walk.tokens}.{at}" for at in range(count)]
            self.walk.cluster.propose(name, self.walk.tokens, *texts)

    @rule(name=st.sampled_from("abc"))
    def crash(self, name: str) -> None:
        if name in self.walk.cluster.up:
            self.walk.cluster.crash(name)

    @precondition(lambda self: len(self.walk.cluster.up) < len(self.walk.cluster.nodes))
    @rule()
    def start(self) -> None:
        self.walk.start()

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.0]))
    def pass_time(self, seconds: float) -> None:
        self.walk.cluster.wait(seconds)
        self.walk.cluster.tick()

    @rule()
    def catch_up(self) -> None:
        self.walk.catch_up()

    @invariant()
    def reads_are_fresh(self) -> None:
        if hasattr(self, "walk"):
            self.walk._look()

    def teardown(self) -> None:
        if hasattr(self, "walk"):
            self.walk.finish()


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(
    max_examples=1250 if SOAK else 25, stateful_step_count=60, deadline=None
)
