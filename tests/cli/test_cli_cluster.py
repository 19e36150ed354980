"""Commands that look at a cluster, and change it: three voters and a follower as real processes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sirius.cli.demo.cluster import Cluster, ServedNode
from sirius.cli.demo.traffic import HttpClient
from sirius.testing.processes import free_ports
from tests.cli.processes import until

Run = Callable[..., Any]


def is_ready(node: ServedNode) -> bool:
    status = node.status()
    return status is not None and status["state"] == "ready" and status["leader"] is not None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Cluster]:
    with Cluster(folder, 3, 1) as made:
        until(lambda: all(map(is_ready, made.nodes)), "ready")
        client = HttpClient(made.nodes[-1].port)
        for number in range(20):
            assert client.ask("PUT", f"/storage/key/{number}", b"%d" % number)[0] == 204
        client.close()
        yield made


def reign_of(cluster: Cluster) -> tuple[str, list[int]]:
    """Who leads, as all nodes say, and with which ballot."""
    seen: dict[str, dict[str, Any]] = {}

    def agree() -> bool:
        seen.update({node.name: node.status() or {} for node in cluster.nodes})
        leaders = {str(status.get("leader")) for status in seen.values()}
        return len(leaders) == 1 and leaders < seen.keys()

    until(agree, "of one mind")
    leader = next(iter(seen.values()))["leader"]
    return leader, seen[leader]["ballot"]


def leader_of(cluster: Cluster) -> str:
    return reign_of(cluster)[0]


def under_one_leader(cluster: Cluster, ask: Callable[[str], Any]) -> tuple[str, Any]:
    """Ask something while one and the same node leads; return both. Another may come to lead at any time, on a machine
    that is busy enough."""
    answers: list[tuple[str, Any]] = []

    def is_steady() -> bool:
        reign = reign_of(cluster)
        answers.append((reign[0], ask(reign[0])))
        return reign_of(cluster) == reign

    until(is_steady, "led by one node for as long as it takes to ask")
    return answers[-1]


def names(cluster: Cluster) -> list[str]:
    return [node.name for node in cluster.nodes]


# ---------------------------------------------------------------------- status


def test_the_status_of_a_cluster_is_a_table(cluster: Cluster, sirius: Run) -> None:
    leader, result = under_one_leader(cluster, lambda _: sirius("status", *names(cluster)))
    assert (result.code, result.err) == (0, "")
    head, *rows = [line.split() for line in result.out.splitlines()]
    assert head == ["node", "state", "role", "leader", "applied", "lag", "staleness"]
    assert [row[:4] for row in rows] == [
        [name, "ready", role, leader]
        for name, role in [
            *((name, "leader" if name == leader else "voter") for name in names(cluster)[:3]),
            (names(cluster)[3], "follower"),
        ]
    ]


def test_the_status_of_one_node_says_more(cluster: Cluster, sirius: Run) -> None:
    result = sirius(f"status {names(cluster)[0]}")
    assert result.code == 0
    assert re.search(r"^  state +ready$", result.out, re.M)
    voters = re.search(r"^  voters +(.*)$", result.out, re.M)
    assert voters is not None
    assert sorted(voters[1].split(", ")) == sorted(names(cluster)[:3])
    assert "\x1b[32mready\x1b[0m" in sirius(f"status {names(cluster)[0]}", terminal=True).out


def test_a_status_can_be_had_over_http_and_as_json(cluster: Cluster, sirius: Run) -> None:
    node = cluster.nodes[3]
    result = sirius(f"status --json {node.http} {node.name}")
    first, second = map(json.loads, result.out.splitlines())
    assert (first["address"], second["address"]) == (node.http, node.name)
    assert first["node_id"] == second["node_id"]
    assert first["role"] == "follower"


def test_who_cannot_be_reached_is_told_and_found_wrong(cluster: Cluster, sirius: Run) -> None:
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    result = sirius(f"status {names(cluster)[0]} {nobody} http://{nobody}")
    assert result.code == 1
    table, at, over_http = result.out.split(nobody, 2)
    assert names(cluster)[0] in table
    assert "efused" in at + over_http
    assert json.loads(sirius(f"status --json {nobody}").out)["error"].startswith(nobody)


def test_a_web_server_that_is_no_node_is_told_apart(cluster: Cluster, sirius: Run) -> None:
    result = sirius(f"status {cluster.nodes[0].http}/storage")
    assert result.code == 1
    assert "/storage/status: 404 Not Found" in result.out


def test_the_addresses_may_come_from_the_configuration(
    cluster: Cluster, sirius: Run, tmp_path: Path
) -> None:
    listed = ", ".join(f'"{name}"' for name in names(cluster)[:3])
    (tmp_path / "s.toml").write_text(f'name = "{names(cluster)[0]}"\nmembers = [{listed}]\n')
    result = sirius("status", "--json", "--config", tmp_path / "s.toml")
    assert [json.loads(line)["name"] for line in result.out.splitlines()] == names(cluster)[:3]


# ---------------------------------------------------------------------- members and leadership


def test_members_are_voters_and_one_leads(cluster: Cluster, sirius: Run) -> None:
    leader, result = under_one_leader(cluster, lambda _: sirius(f"members {names(cluster)[3]}"))
    assert result.code == 0
    head, *rows = [line.split() for line in result.out.splitlines()]
    assert head == ["name", "role", "node"]
    assert sorted(row[0] for row in rows) == sorted(names(cluster)[:3])
    assert [row[0] for row in rows if row[1] == "leader"] == [leader]


def test_members_are_json(cluster: Cluster, sirius: Run) -> None:
    command = f"members --json {names(cluster)[1]}"
    leader, result = under_one_leader(cluster, lambda _: sirius(command))
    found = json.loads(result.out)
    assert found["leader"] == leader
    assert len(found["voters"]) == 3
    assert found["learners"] == []


def test_the_leadership_goes_where_it_is_sent(cluster: Cluster, sirius: Run) -> None:
    def goes() -> bool:
        leader = leader_of(cluster)
        to = next(name for name in names(cluster)[:3] if name != leader)
        # Any node can be asked: the one that leads is found through it.
        result = sirius(f"transfer-leadership --json --to {to} {names(cluster)[3]}")
        assert result.code == 0
        return (json.loads(result.out)["from"], leader_of(cluster)) == (leader, to)

    # Not always at the first attempt: it may be on its way elsewhere by itself.
    until(goes, "led by the other")
    leader, again = under_one_leader(
        cluster, lambda leader: sirius(f"transfer-leadership --to {leader} {leader}")
    )
    assert (again.code, again.err) == (0, f"sirius: {leader} leads already\n")


def test_the_leadership_is_not_given_to_a_stranger(cluster: Cluster, sirius: Run) -> None:
    command = f"transfer-leadership --to {names(cluster)[3]} {names(cluster)[0]}"
    _, result = under_one_leader(cluster, lambda _: sirius(command))
    assert result.code == 2
    assert "is not a voter" in result.err
    assert len(result.err.splitlines()) == 1


# ---------------------------------------------------------------------- load and copies


def test_a_cluster_can_be_measured(cluster: Cluster, sirius: Run) -> None:
    words = ["--json", "--seconds", "0.5", "--outstanding", "40", "--body-bytes", "10"]
    result = sirius("bench", *words, *names(cluster)[:3])
    assert result.code == 0
    found = json.loads(result.out)
    assert found["updates"] >= 40
    assert 0 < found["p50_s"] <= found["p90_s"] <= found["p99_s"]


def test_a_new_node_begins_with_a_copy_and_follows(
    cluster: Cluster, folder: Path, sirius: Run
) -> None:
    newcomer = ServedNode("newcomer", f"127.0.0.1:{free_ports(1)[0]}", folder, names(cluster)[:3])
    assert sirius("snapshot", folder / "node-1", folder / "copy").code == 0
    assert sirius("bootstrap", folder / "copy", folder / "newcomer").code == 0
    voter = HttpClient(cluster.nodes[0].port)
    assert voter.ask("PUT", "/storage/later", b"than the copy")[0] == 204
    voter.close()
    newcomer.launch()
    try:
        newcomer.await_address()
        until(lambda: is_ready(newcomer), "ready")
        client = HttpClient(newcomer.port)
        until(lambda: client.ask("GET", "/storage/later")[0] == 200, "there")
        assert client.ask("GET", "/storage/key/7") == (200, b"7")
        client.close()
        status, voter_status = newcomer.status(), cluster.nodes[0].status()
        assert status is not None
        assert voter_status is not None
        assert status["role"] == "follower"
        assert status["cluster"] == voter_status["cluster"]
        assert status["node_id"] != voter_status["node_id"]
        assert status["replayed"] > 0
    finally:
        newcomer.stop()


def test_a_leader_that_is_stopped_hands_over_and_comes_back(cluster: Cluster, folder: Path) -> None:
    old = next(node for node in cluster.nodes if node.name == leader_of(cluster))
    log = folder / f"{old.label}.log"
    others = [node for node in cluster.voters if node is not old]
    old.stop()

    def is_led_by_another() -> bool:
        leaders = {str((node.status() or {}).get("leader")) for node in others}
        return len(leaders) == 1 and not leaders & {old.name, "None"}

    until(is_led_by_another, "led by another")
    client = HttpClient(others[0].port)
    assert client.ask("PUT", "/storage/meanwhile", b"yes")[0] == 204
    client.close()
    words = log.read_text()
    assert not re.search("Traceback|CRITICAL|ERROR", words), words
    old.launch()
    old.await_address()
    until(lambda: is_ready(old), "ready again")
    client = HttpClient(old.port)
    assert client.ask("GET", "/storage/meanwhile?linearizable=1") == (200, b"yes")
    client.close()
