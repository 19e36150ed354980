"""Metrics: what a scrape of a node tells, and that every metric is documented."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sirius.app.metrics import AppMetrics
from sirius.ops.metrics import ROLES, NodeMetrics
from sirius.ops.recorder import Histogram, Recorder
from sirius.ops.status import PeerStatus, State, Status

DOCS = Path(__file__).resolve().parents[2] / "docs"

STATUS = Status(
    name="127.0.0.1:7401",
    state=State.READY,
    problem=None,
    role="leader",
    leader="127.0.0.1:7401",
    cluster="00c1",
    node_id="00a1",
    voters=("127.0.0.1:7401", "127.0.0.1:7402"),
    learners=("127.0.0.1:7403",),
    wished=("127.0.0.1:7401", "127.0.0.1:7402", "127.0.0.1:7403"),
    decided=100,
    known=120,
    durable=98,
    applied=90,
    lag=30,
    staleness_s=0.5,
    replayed=40,
    replay_total=41,
    ballot=(7, 1),
    outstanding=3,
    backlog_bytes=4096,
    handler_busy_s=0.25,
    handler_exceptions=2,
    log_bytes=123_456,
    segments=5,
    tombstone_floor=12,
    source="127.0.0.1:7409",
    followers={"127.0.0.1:7408": 80},
    peers=(
        PeerStatus("127.0.0.1:7402", True, 10, 2048, 1, 30, 4, 2, failures=3, round_trip_s=0.0125),
        PeerStatus("127.0.0.1:7403", False),
    ),
    elections=4,
    leader_since_s=12.5,
    boot_s=0.75,
    replay_s=0.5,
    consensus_bytes=777,
    repeated_accepts=9,
    catch_up_window=512,
    compaction_began_at=1e9,
    compactions=6,
    compaction_s=1.5,
)


class Fake:
    """A node that has the status it is given."""

    def __init__(self, status: Status = STATUS) -> None:
        self.now = status
        self.asked = 0

    def status(self) -> Status:
        self.asked += 1
        return self.now


Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(metrics: NodeMetrics) -> Samples:
    families = text_string_to_metric_families(metrics.text().decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def value(found: Samples, name: str, /, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


def families(*, status: Status = STATUS) -> Iterator[str]:
    """The names of all metrics of ours, as Prometheus has them."""
    metrics = NodeMetrics(Fake(status), Recorder())
    AppMetrics(lambda: 1, lambda: 1).register(metrics.registry)
    for family in text_string_to_metric_families(metrics.text().decode()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        if name.startswith("sirius_"):
            yield name


@pytest.mark.parametrize(
    ("name", "expected"),
    {
        "sirius_decided_seq": 100,
        "sirius_known_seq": 120,
        "sirius_durable_seq": 98,
        "sirius_applied_seq": 90,
        "sirius_lag_entries": 30,
        "sirius_staleness_seconds": 0.5,
        "sirius_voters": 2,
        "sirius_learners": 1,
        "sirius_wished_members": 3,
        "sirius_has_leader": 1,
        "sirius_leader_age_seconds": 12.5,
        "sirius_elections_total": 4,
        "sirius_ballot_round": 7,
        "sirius_outstanding_requests": 3,
        "sirius_backlog_bytes": 4096,
        "sirius_handler_busy_seconds": 0.25,
        "sirius_handler_exceptions_total": 2,
        "sirius_replayed_records": 40,
        "sirius_replay_end_seq": 41,
        "sirius_boot_seconds": 0.75,
        "sirius_replay_seconds": 0.5,
        "sirius_consensus_bytes": 777,
        "sirius_repeated_accepts_total": 9,
        "sirius_catch_up_window_entries": 512,
        "sirius_compaction_began_timestamp_seconds": 1e9,
        "sirius_log_bytes": 123_456,
        "sirius_log_segments": 5,
        "sirius_tombstone_floor_seq": 12,
        "sirius_compaction_passes_total": 6,
        "sirius_compaction_last_seconds": 1.5,
        "sirius_compaction_problem": 0,
        "sirius_members_file_problem": 0,
        "sirius_problem": 0,
    }.items(),
)
def test_each_number_of_the_status_is_a_metric(name: str, expected: float) -> None:
    assert value(samples(NodeMetrics(Fake())), name) == expected


def test_a_node_is_in_one_state_and_one_role() -> None:
    found = samples(NodeMetrics(Fake()))
    assert {state: value(found, "sirius_state", state=state) for state in State} == {
        state: float(state == State.READY) for state in State
    }
    assert [value(found, "sirius_role", role=role) for role in ROLES] == [1, 0, 0, 0, 0]


def test_names_are_labels() -> None:
    found = samples(NodeMetrics(Fake()))
    who = {"name": "127.0.0.1:7401", "cluster": "00c1", "node_id": "00a1"}
    assert value(found, "sirius_node_info", **who) == 1
    assert value(found, "sirius_leader_info", leader="127.0.0.1:7401") == 1
    assert value(found, "sirius_source_info", source="127.0.0.1:7409") == 1
    assert value(found, "sirius_follower_seq", follower="127.0.0.1:7408") == 80
    assert value(found, "sirius_follower_lag_entries", follower="127.0.0.1:7408") == 20
    assert value(found, "sirius_peer_sent_bytes_total", peer="127.0.0.1:7402") == 2048
    assert value(found, "sirius_peer_connected", peer="127.0.0.1:7402") == 1
    assert value(found, "sirius_peer_sent_messages_total", peer="127.0.0.1:7402") == 30
    assert value(found, "sirius_peer_waiting_messages", peer="127.0.0.1:7402") == 4
    assert value(found, "sirius_peer_connects_total", peer="127.0.0.1:7402") == 2
    assert value(found, "sirius_peer_failures_total", peer="127.0.0.1:7402") == 3
    assert value(found, "sirius_peer_round_trip_seconds", peer="127.0.0.1:7402") == 0.0125


def test_a_round_trip_that_was_not_measured_is_left_out() -> None:
    found = samples(NodeMetrics(Fake()))
    peers = {labels for name, labels in found if name == "sirius_peer_round_trip_seconds"}
    assert peers == {(("peer", "127.0.0.1:7402"),)}


def test_what_nobody_knows_yet_is_left_out_or_infinite() -> None:
    status = replace(
        STATUS, leader=None, leader_since_s=None, boot_s=None, source=None, staleness_s=math.inf
    )
    found = samples(NodeMetrics(Fake(status)))
    names = {name for name, _ in found}
    assert not names & {"sirius_leader_info", "sirius_leader_age_seconds", "sirius_boot_seconds"}
    assert "sirius_source_info" not in names
    assert value(found, "sirius_has_leader") == 0
    assert value(found, "sirius_staleness_seconds") == math.inf


def test_problems_are_flags() -> None:
    status = replace(STATUS, problem="p", members_problem="m", compaction_problem="c")
    found = samples(NodeMetrics(Fake(status)))
    for name in ("sirius_problem", "sirius_members_file_problem", "sirius_compaction_problem"):
        assert value(found, name) == 1


def test_a_node_is_asked_when_it_is_scraped_and_not_before() -> None:
    node = Fake()
    metrics = NodeMetrics(node)
    assert node.asked == 0
    metrics.text()
    assert node.asked == 1
    node.now = replace(STATUS, applied=91)
    assert value(samples(metrics), "sirius_applied_seq") == 91


def test_two_nodes_of_one_process_do_not_mix() -> None:
    first, second = NodeMetrics(Fake()), NodeMetrics(Fake(replace(STATUS, applied=1)))
    assert value(samples(first), "sirius_applied_seq") == 90
    assert value(samples(second), "sirius_applied_seq") == 1


# ---------------------------------------------------------------------- the recorder


def test_what_is_recorded_is_in_the_histograms() -> None:
    recorder = Recorder()
    recorder.batch(3)
    recorder.batch(100_000)
    recorder.decided(0.002)
    recorder.applied(0.03)
    recorder.synced(0.4)
    found = samples(NodeMetrics(Fake(), recorder))
    assert value(found, "sirius_batch_updates_count") == 2
    assert value(found, "sirius_batch_updates_bucket", le="2") == 0
    assert value(found, "sirius_batch_updates_bucket", le="4") == 1
    assert value(found, "sirius_batch_updates_bucket", le="16384") == 1
    assert value(found, "sirius_batch_updates_bucket", le="+Inf") == 2
    assert value(found, "sirius_decide_seconds_sum") == 0.002
    assert value(found, "sirius_apply_seconds_sum") == 0.03
    assert value(found, "sirius_sync_seconds_bucket", le="0.25") == 0
    assert value(found, "sirius_sync_seconds_bucket", le="0.5") == 1


def test_a_bound_belongs_to_its_bucket() -> None:
    histogram = Histogram([1.0, 2.0])
    for each in (1.0, 2.0, 2.5):
        histogram.add(each)
    assert histogram.read().buckets == [(1.0, 1), (2.0, 2), (math.inf, 3)]


def test_nothing_is_lost_between_threads() -> None:
    histogram = Histogram([1.0])

    def add_many() -> None:
        for _ in range(2_000):
            histogram.add(1)

    threads = [Thread(target=add_many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert histogram.read() == ([(1.0, 8_000), (math.inf, 8_000)], 8_000.0)


# ---------------------------------------------------------------------- the status


def test_a_status_is_json() -> None:
    values = replace(STATUS, staleness_s=math.inf).as_dict()
    assert values["staleness_s"] is None
    assert json.loads(json.dumps(values, allow_nan=False))["state"] == "ready"


# ---------------------------------------------------------------------- the documents


def test_every_metric_is_documented_and_every_documented_metric_exists() -> None:
    rows = re.findall(r"^\| (`sirius_[^|]*) \|", (DOCS / "metrics.md").read_text("utf-8"), re.M)
    documented = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(documented) == sorted(families())


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DOCS / "grafana-sirius.json").read_text("utf-8"))
    return found


def expressions(tree: object) -> Iterator[str]:
    if isinstance(tree, dict):
        yield from (str(tree[name]) for name in ("expr", "query") if name in tree)
        for each in tree.values():
            yield from expressions(each)
    elif isinstance(tree, list):
        for each in tree:
            yield from expressions(each)


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    known = {f"{name}{end}" for name in families() for end in ("", "_bucket", "_sum", "_count")}
    asked = {name for text in expressions(dashboard()) for name in re.findall(r"sirius_\w+", text)}
    assert len(asked) > 20
    assert asked <= known


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    panels = dashboard()["panels"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len({*places}) == len(panels) == len({panel["id"] for panel in panels})
