"""The simulator of regions: seeds, the same run twice, and mistakes that it has to find."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sirius.broadcast.config import ClientConfig, ProxyConfig
from sirius.broadcast.events import EventBatch, Kind, Stream, hole
from sirius.broadcast.messages import Peer, Published
from sirius.broadcast.proxy import Layout
from sirius.broadcast.proxy.book import Book
from sirius.testing.broadcast.__main__ import main
from sirius.testing.broadcast.checker import Checker, Violation
from sirius.testing.broadcast.faults import Fault
from sirius.testing.broadcast.faults import Kind as FaultKind
from sirius.testing.broadcast.many import Totals, run_many
from sirius.testing.broadcast.settings import draw_settings
from sirius.testing.broadcast.simulation import run
from sirius.testing.broadcast.traps import TRAPS, hunt
from sirius.testing.broadcast.world import World
from sirius.types import Seq
from tests.broadcast.histories import gc, keyed

S = Stream("s")


def check(seeds: range) -> Totals:
    totals = Totals.of(run_many(seeds))
    broken = [f"seed {each.seed}: {each.violation}" for each in totals.violations]
    assert broken == []
    assert totals.void == []
    return totals


def test_fifteen_seeds() -> None:
    totals = check(range(15))
    assert min(totals.faults.values()) > 5
    assert totals.holes > 250
    assert totals.healed_in_s_max < 5.0


@pytest.mark.deep
@pytest.mark.long
def test_two_thousand_seeds() -> None:
    check(range(1000, 3000))


def test_the_same_seed_is_the_same_run(capsys: pytest.CaptureFixture[str]) -> None:
    outputs = []
    for _ in range(2):
        assert main(["--seed", "17"]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    assert outputs[0].startswith("seed 17: regions ")
    assert "good" in outputs[0].splitlines()[-1]
    assert run(17).trace_crc != run(18).trace_crc


def test_many_seeds_are_summed_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3", "--count", "2"]) == 0
    assert capsys.readouterr().out.startswith("2 seeds, 0 violations, 0 void\n")


def test_a_link_that_goes_down_is_bypassed_within_a_second() -> None:
    """Sprinkler, section 5.3 and Figure 7: four regions, a link is out, and everything comes all the same."""
    drawn = draw_settings(0)
    layout = Layout((Peer("A"), Peer("B"), Peer("C"), Peer("D")), {S: Peer("B")})
    settings = replace(
        drawn,
        regions="ABCD",
        clients=("A1", "B1", "C1", "D1"),
        joins=(),
        layout=layout,
        chains={},
        replicas=(),
        duration_s=4.0,
        proxy=replace(ProxyConfig(), switch_c=1.0),
        client=ClientConfig(),
    )
    world = World(settings)
    world.start([Fault(1.0, FaultKind.LINK, "B", 2.0, other="C")])
    world.loop.run(0.99)
    assert world.proxies["C"].machine.source(S) == "B"
    for now in (2.0, 2.5, 2.99):
        world.loop.run(now - 0.9)
        published = world.checker.truth.last(S)
        world.loop.run(now)
        assert world.proxies["C"].machine.source(S) in ("A", "D")
        assert world.clients["C1"].counts[0][1] >= published > 0


# ---------------------------------------------------------------------- the checker itself


def checker() -> Checker:
    made = Checker()
    made.truth.add(S, EventBatch.of([b"a", b"a"], payloads=[b"1", b"2"]).numbered(Seq(1), 0))
    made.begins("c", S, Seq(0))
    return made


def test_a_gap_or_a_repetition_is_noticed() -> None:
    made = checker()
    with pytest.raises(Violation, match="O: c is given s from 2 on behind 0"):
        made.deliver("c", S, hole(Seq(2), Seq(2)))
    made.deliver("c", S, hole(Seq(1), Seq(1)))
    with pytest.raises(Violation, match="O: "):
        made.deliver("c", S, hole(Seq(1), Seq(2)))


def test_an_event_that_nobody_published_is_noticed() -> None:
    made = checker()
    with pytest.raises(Violation, match="E: c has another event at 1"):
        made.deliver("c", S, keyed(1, "x"))
    with pytest.raises(Violation, match="E: c has s up to 3, of 2"):
        made.deliver("c", S, hole(Seq(1), Seq(3)))


def test_a_hole_without_a_reason_is_noticed() -> None:
    made = checker()
    made.deliver("c", S, hole(Seq(1), Seq(2)))
    with pytest.raises(Violation, match="H: c was never told why 1 of s"):
        made.check_holes("c", S)
    made.truth.add(S, gc(3, "seq < 3"))
    made.deliver("c", S, gc(3, "seq < 3"))
    made.check_holes("c", S)


def test_what_is_published_twice_is_noticed() -> None:
    made = checker()
    with pytest.raises(Violation, match="E: b'1' is in s twice"):
        made.truth.add(S, EventBatch.of([b"b"], Kind.DATA, payloads=[b"1"]).numbered(Seq(3), 0))
    with pytest.raises(Violation, match="is not what stands there"):
        made.published(Published(S, 1, 1, Seq(1), Seq(1)), EventBatch.of([b"a"], payloads=[b"9"]))


# ---------------------------------------------------------------------- mistakes that it has to find

SEEDS = {
    "early-tail": 21,
    "alone-to-the-end": 120,
    "old-pending": 17,
    "open-predicate": 52,
    "bare-hole": 2,
    "25": 7,
}
"""Where to begin, so that it does not take long: the first seed that shows it. The others show at seed 0."""
LETTERS = {
    **dict.fromkeys(("twice", "head-answers", "tail-forgets", "early-tail", "old-pending"), "E"),
    **dict.fromkeys(("alone-to-the-end", "no-numbers"), "E"),
    **dict.fromkeys(("bare-hole", "open-predicate"), "H"),
    **dict.fromkeys(("slow-application", "hoarding"), "M"),
    "gap": "O",
}
"""Which promise a trap breaks, as far as that is always the same."""


@pytest.mark.parametrize("name", TRAPS)
def test_a_mistake_is_found(name: str) -> None:
    begin = SEEDS.get(name, 0)
    found = hunt(TRAPS[name], range(begin, begin + 300))
    assert found is not None
    assert str(found[1].violation)[0] == LETTERS.get(name, "L")


def test_a_trap_can_be_sprung_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--trap", "gap", "--count", "3"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "events are delivered behind a gap: a client takes whatever comes"
    assert "BROKEN: O: " in lines[1]


def test_a_trap_leaves_nothing_behind() -> None:
    before = Book.published
    with TRAPS["twice"].sprung():
        assert Book.published is not before
    assert Book.published is before
