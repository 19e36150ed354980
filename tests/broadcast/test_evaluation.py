"""The evaluation of the Sprinkler paper with our machines: its network, its meter, and what its figures must show."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from sirius.broadcast.events import EventBatch, Stream, hole
from sirius.broadcast.messages import Forward, Message, Notify, Peer
from sirius.cli.group import run
from sirius.errors import InvariantViolation
from sirius.testing.broadcast.evaluation.clock import Clock
from sirius.testing.broadcast.evaluation.collection import kept
from sirius.testing.broadcast.evaluation.dissemination import (
    COASTS,
    measure,
    outage,
    outage_plan,
    recovery_s,
)
from sirius.testing.broadcast.evaluation.figures import FIGURES
from sirius.testing.broadcast.evaluation.geoplex import MAX_LOAD, Geoplex, Plan, latencies
from sirius.testing.broadcast.evaluation.links import MESSAGE_BYTES, Links, size_on_wire
from sirius.testing.broadcast.evaluation.meter import Meter
from sirius.testing.broadcast.evaluation.plot import Chart, Line, svg
from sirius.testing.broadcast.evaluation.popularity import Ranking, growing_keys, invalidations
from sirius.types import Seq
from tests.broadcast.histories import data

S = Stream("A")
DOCS = Path(__file__).resolve().parents[2] / "docs" / "broadcast"

# ---------------------------------------------------------------------- time and links


def test_a_clock_calls_in_the_order_of_times_and_of_calls() -> None:
    clock = Clock()
    seen: list[tuple[str, float]] = []

    def note(name: str) -> None:
        seen.append((name, clock.now))

    def note_and_go_on(name: str) -> None:
        note(name)
        clock.at(clock.now, note, "at once")

    clock.at(0.2, note, "second")
    clock.at(0.1, note_and_go_on, "first")
    clock.at(0.1, note, "first, too")
    clock.at(0.9, note, "too late")
    clock.run(0.5)
    assert seen == [("first", 0.1), ("first, too", 0.1), ("at once", 0.1), ("second", 0.2)]
    assert clock.now == 0.5


def links() -> tuple[Clock, Links, list[tuple[float, str, str]]]:
    clock = Clock()
    seen: list[tuple[float, str, str]] = []

    def arrive(source: Peer, target: Peer, _: Message) -> None:
        seen.append((round(clock.now, 6), source, target))

    made = Links(clock, latencies("AB", 20), arrive, client_bps=1e6, proxy_bps=1e7, between_bps=1e8)
    return clock, made, seen


def test_messages_wait_for_their_uplink_and_take_their_time() -> None:
    clock, made, seen = links()
    message = Forward(S, EventBatch.of([bytes(10_000)]))
    wire_s = size_on_wire(message) * 8 / 1e6
    made.send(Peer("A1"), Peer("A2"), message)
    made.send(Peer("A1"), Peer("A3"), message)
    made.send(Peer("A"), Peer("A3"), message)
    made.send(Peer("A"), Peer("B"), message)
    clock.run(1.0)
    expected = [
        (round(wire_s / 10 + 0.001, 6), "A", "A3"),
        (round(wire_s / 100 + 0.020, 6), "A", "B"),
        (round(wire_s + 0.001, 6), "A1", "A2"),
        (round(2 * wire_s + 0.001, 6), "A1", "A3"),
    ]
    assert seen == expected


def test_a_message_is_as_large_as_its_batches() -> None:
    assert size_on_wire(Notify(())) == MESSAGE_BYTES
    assert size_on_wire(Forward(S, data(1, "abc"))) == MESSAGE_BYTES + 60 + 3


def test_a_link_that_is_out_loses_what_is_under_way() -> None:
    clock, made, seen = links()
    made.send(Peer("A"), Peer("B"), Notify(()))
    made.send(Peer("A"), Peer("A1"), Notify(()))
    clock.at(0.01, made.cut, frozenset("AB"))
    clock.run(0.1)
    assert [target for _, _, target in seen] == ["A1"]
    assert made.lost == 1
    made.cut(None)
    made.send(Peer("B"), Peer("A"), Notify(()))
    clock.run(0.2)
    assert [target for _, _, target in seen] == ["A1", "A"]


# ---------------------------------------------------------------------- the meter


def meter(clients: int = 2) -> Meter:
    made = Meter(clients)
    for number in range(clients):
        made.begins(Peer(f"A{number}"), S)
    made.published(0.0, S, 2)
    made.published(0.1, S, 1)
    return made


def test_latency_is_until_the_last_client_has_it() -> None:
    made = meter()
    made.delivered(0.3, Peer("A0"), S, data(1, "a", "b"))
    assert made.latencies(S, 0.0, 1.0) == []
    assert made.latencies(S, 0.0, 0.1, until=0.6) == [0.6]
    made.delivered(0.5, Peer("A1"), S, data(1, "a", "b", "c"))
    assert made.latencies(S, 0.0, 1.0) == [0.5]
    assert made.missing() == 1
    made.delivered(0.7, Peer("A0"), S, data(3, "c"))
    assert made.latencies(S, 0.05, 1.0) == [pytest.approx(0.6)]
    assert made.missing() == 0


def test_throughput_is_that_of_an_average_client() -> None:
    made = meter()
    made.delivered(0.31, Peer("A0"), S, data(1, "a", "b"))
    assert made.throughput(0.3, 0.5) == pytest.approx(5.0)
    assert made.throughput(0.4, 0.5) == 0.0
    assert made.throughput(0.3, 0.4, Stream("B")) == 0.0


def test_the_meter_sees_gaps_repetitions_and_holes() -> None:
    made = meter()
    with pytest.raises(InvariantViolation, match="A0 is given 2 of A behind 0"):
        made.delivered(0.3, Peer("A0"), S, data(2, "b"))
    made.delivered(0.3, Peer("A0"), S, hole(Seq(1), Seq(2)))
    assert made.holes == 2
    with pytest.raises(InvariantViolation):
        made.delivered(0.3, Peer("A0"), S, data(1, "a"))


# ---------------------------------------------------------------------- what the figures must show


def test_the_load_is_carried_and_everywhere_within_300_ms() -> None:
    """Section 5.2: 2.592 million events a second; before saturation, latency is generally below 300 ms."""
    found = measure(Plan(COASTS, clients=20))
    assert 0.98 < found.throughput / MAX_LOAD < 1.02
    assert max(found.latency_s.values()) < 0.3


def test_a_small_fanout_takes_longer() -> None:
    """Section 5.2: with a small fanout the graph over which events travel is deep."""
    narrow = measure(Plan(COASTS, clients=20, fanout=1))
    wide = measure(Plan(COASTS, clients=20, fanout=4))
    assert min(narrow.latency_s.values()) > 1.5 * max(wide.latency_s.values())


def test_a_run_depends_on_its_seed_alone() -> None:
    plan = Plan(COASTS, clients=5, load=200_000)
    assert measure(plan) == measure(plan)
    assert measure(plan) != measure(Plan(COASTS, clients=5, load=200_000, seed=2))


@pytest.fixture(scope="module")
def lost_link() -> tuple[Geoplex, dict[float, Peer | None]]:
    """Figure 7, shorter and with few clients; and whom 3 had stream 2 from."""
    sources: dict[float, Peer | None] = {}
    plan = outage_plan(clients=5, load=200_000)

    def watch(geoplex: Geoplex) -> None:
        for at in (2.9, 3.9, 6.0, 8.5):
            geoplex.clock.at(at, lambda at=at: sources.update({at: source_of(geoplex)}))

    return outage(plan, 3.0, 6.1, 9.0, watch), sources


def source_of(geoplex: Geoplex) -> Peer | None:
    return geoplex.proxies[Peer("3")].source(Stream("2"))


Lost = tuple[Geoplex, dict[float, Peer | None]]


def test_a_link_is_bypassed_while_it_is_out(lost_link: Lost) -> None:
    """Section 5.3: indirect routing through regions 0 and 1, and back when the link is restored."""
    _, sources = lost_link
    assert sources[2.9] == sources[8.5] == "2"
    assert {sources[3.9], sources[6.0]} <= {"0", "1"}


def test_throughput_recovers_within_a_second(lost_link: Lost) -> None:
    geoplex, _ = lost_link
    assert geoplex.links.lost > 0
    assert 0.1 <= recovery_s(geoplex, 3.0) <= 1.0


def test_no_event_is_lost_with_a_link(lost_link: Lost) -> None:
    geoplex, _ = lost_link
    assert (geoplex.meter.missing(), geoplex.meter.holes) == (0, 0)


def test_latency_rises_for_the_regions_of_the_lost_link_alone(lost_link: Lost) -> None:
    """Figure 7b: slightly higher than before, because the path to region 3 is longer."""
    meter = lost_link[0].meter

    def mean(region: str, begin: float, end: float) -> float:
        return float(np.mean(meter.latencies(Stream(region), begin, end)))

    assert max(meter.latencies(Stream("2"), 2.9, 3.5)) > 0.2
    assert mean("2", 4.5, 6.0) > mean("2", 1.0, 2.8) + 0.01
    assert abs(mean("0", 4.5, 6.0) - mean("0", 1.0, 2.8)) < 0.02


# ---------------------------------------------------------------------- garbage collection


def test_new_keys_attract_more_invalidations_than_old_ones() -> None:
    """Figure 9: the slope is steeper with a larger skew, and the line higher with a larger rate."""
    counts = {}
    for skew, per_tick in ((1.1, 50.0), (1.1, 100.0), (1.5, 100.0)):
        found = np.zeros(300, np.int64)
        for _, ages in invalidations(skew, per_tick, 300, np.random.default_rng(3)):
            found += np.bincount(ages, minlength=300)
        counts[skew, per_tick] = found
    for found in counts.values():
        assert found[1] > found[10] > found[100]
    assert counts[1.1, 100.0].sum() > 1.8 * counts[1.1, 50.0].sum()
    assert drop(counts[1.5, 100.0]) > 2 * drop(counts[1.1, 100.0])


def drop(found: np.ndarray) -> float:
    return float(found[1:4].sum() / found[50:53].sum())


def test_a_ranking_moves_others_down() -> None:
    ranking = Ranking(2.0, np.random.default_rng(1), 100, keys=3)
    ranking.add(5)
    assert sorted(ranking._ranked) == list(range(8))
    assert ranking._ranked != list(range(8))
    assert set(ranking.draw(500).tolist()) == set(range(8))


def test_keys_that_are_added_make_little_difference() -> None:
    """Figure 10b, case b: a key is added for every ten invalidations."""
    keys = growing_keys(1.1, 220_000, np.random.default_rng(5), keys=10_000)
    total, left = list(kept(keys))[-1]
    assert total == 22 * (10_000 - 10_000 // 11)
    assert 0.8 < 1 - left / total < 0.9


# ---------------------------------------------------------------------- plots and the command

CHART = Chart(
    "name",
    "A < B",
    "x",
    "y",
    (Line("one", ((1, 5.0), (10, 7.5))), Line("two", ((1, 0.5), (1000, 2.0)))),
    log_x=True,
)
SVG = "{http://www.w3.org/2000/svg}"


def test_a_plot_is_an_image_with_its_lines_inside() -> None:
    root = ElementTree.fromstring(svg(CHART))
    lines = root.findall(f"{SVG}polyline")
    assert len(lines) == 2
    for line in lines:
        for place in line.attrib["points"].split():
            x, y = map(float, place.split(","))
            assert 80 <= x <= 624
            assert 52 <= y <= 348
    texts = [each.text for each in root.findall(f"{SVG}text")]
    assert {"A < B", "x", "y", "one", "two", "1", "10", "100", "1k", "0", "8"} <= set(texts)


def test_values_stand_where_they_belong() -> None:
    first, second = (
        line.attrib["points"]
        for line in ElementTree.fromstring(svg(CHART)).findall(f"{SVG}polyline")
    )
    assert first == "80.0,163.0 261.3,70.5"
    assert second == "80.0,329.5 624.0,274.0"


def test_the_command_draws_and_tells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sirius.testing.broadcast.evaluation.collection._TICKS", 50)
    assert run(["sim", "sprinkler", "9", "--json", "--out", str(tmp_path / "plots")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["files"] == [str(tmp_path / "plots" / "figure-9.svg")]
    assert set(told["lines"]["figure-9"]) == set(told["facts"]["slopes"])
    assert (tmp_path / "plots" / "figure-9.svg").read_text().startswith("<svg")


@pytest.mark.parametrize("name", FIGURES)
def test_the_page_shows_every_figure(name: str) -> None:
    page = (DOCS / "evaluation.md").read_text(encoding="utf-8")
    files = sorted(DOCS.glob(f"figure-{name}*.svg"))
    assert files
    assert all(f"]({each.name})" in page for each in files)
    assert f"sirius sim sprinkler {name} " in page
