"""A cluster with mutual TLS, from the first connection to new certificates, through the public API."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sirius.errors import NotPermitted, Unreachable, WrongCertificate
from sirius.testing.processes import NodeProcess, ProcessCluster, free_ports
from sirius.transport.client import Client
from sirius.transport.security import Plaintext, Security, Tls, TlsSettings
from tests.transport.certificates import Authority

ROLES = {"member-*": ["member"], "follower-*": ["follower"], "ops*": ["client", "admin"]}


class TlsCluster(ProcessCluster):
    """Three members and a follower, each with a certificate of its own."""

    def prepare(self) -> None:
        self.authority = Authority(self.folder)
        self.subjects = {
            node.name: f"{'member' if node in self.voters else 'follower'}-{number}"
            for number, node in enumerate(self.nodes)
        }
        for node in self.nodes:
            self.equip(node, self.authority.issue(self.subjects[node.name]))

    def equip(self, node: NodeProcess, files: TlsSettings) -> None:
        tls = {key: str(getattr(files, key)) for key in ("certificate", "key", "authority")}
        node.config = {**node.config, "tls": {**tls, "roles": ROLES}}

    def client(self, *nodes: NodeProcess, security: Security) -> Client:
        return Client([node.name for node in nodes], security, timeout_s=10)

    def peers(self, node: NodeProcess) -> dict[str, Any]:
        return {peer["name"]: peer for peer in node.call("status")["peers"]}

    def says(self, node: NodeProcess, of: NodeProcess, words: str) -> None:
        """Wait until a node says why it does not reach another one."""
        self.until(
            lambda: words in (self.peers(node).get(of.name, {}).get("error") or ""),
            f'"{words}" of {node.name} about {of.name}',
            60,
        )


@pytest.fixture
def cluster() -> Iterator[TlsCluster]:
    with TlsCluster.temporary(3, 1, durability="os") as found:
        found.prepare()
        yield found


def started(cluster: TlsCluster) -> TlsCluster:
    cluster.start()
    cluster.wait_until_ready()
    return cluster


def test_a_cluster_with_certificates_works_through_failover_and_new_certificates(
    cluster: TlsCluster,
) -> None:
    started(cluster)
    ops = Tls(cluster.authority.issue("ops-old"))
    with cluster.client(*cluster.nodes, security=ops) as client:
        assert client.status()["state"] == "ready"
        membership = client.members().configuration
        assert membership is not None
        assert len(membership.voters) == 3
    for number, node in enumerate(cluster.nodes):
        assert node.call("put", key=f"k{number}", body=f"{number} x")
    for node in cluster.voters:
        node.call("load", name="load", prefix=f"{node.name}/", outstanding=16, keys=100)
    leader = cluster.leader()
    leader.kill()
    survivors = [node for node in cluster.voters if node is not leader]
    goes_on(cluster, *survivors)

    # All certificates anew, and with them the authority: first trusted beside the old one, then alone.
    renew(cluster)
    leader.start()
    cluster.wait_until_ready()
    goes_on(cluster, *survivors)
    fresh = Tls(cluster.authority.issue("ops-new"))
    for node in cluster.nodes:
        with cluster.client(node, security=fresh) as client:
            assert client.status()["state"] == "ready"
        with cluster.client(node, security=ops) as client, pytest.raises(WrongCertificate):
            client.status()
    for node in survivors:
        node.call("finish", name="load")
    cluster.settle()
    assert cluster.lost() == {}


def test_a_follower_that_is_far_behind_takes_files_over_tls() -> None:
    settings = {"catchup": {"segment_slots": 200, "interval_s": 0.1}}
    small = {"segment_bytes_max": 100_000, "reserve_bytes": 0}
    with TlsCluster.temporary(1, 1, durability="os", log=small, **settings) as cluster:
        cluster.prepare()
        [voter], [follower] = cluster.voters, cluster.followers
        voter.start()
        cluster.wait_until_ready()
        voter.call("load", name="fill", prefix="k/", outstanding=512, count=5000, keys=5000)
        voter.call("finish", name="fill", stop=False, timeout_s=120)
        # What it writes itself is one segment.
        follower.config = {**follower.config, "log": {"reserve_bytes": 0}}
        follower.start()
        cluster.wait_until_ready(60)
        cluster.settle(60)
        assert cluster.lost() == {}
        assert follower.call("status")["segments"] > 5


def renew(cluster: TlsCluster) -> None:
    """Give every node a certificate of another authority, in three steps, without a restart."""
    old, new = cluster.authority, Authority(cluster.folder, "renewed")
    trusted = cluster.folder / f"{old.name}.crt"
    new.issue("unused")
    before = trusted.read_bytes()
    both = before + (cluster.folder / "renewed.crt").read_bytes()
    replace_file(trusted, both)
    for subject in cluster.subjects.values():
        new.issue(subject)
    replace_file(trusted, (cluster.folder / "renewed.crt").read_bytes())
    cluster.authority = new


def replace_file(path: Path, content: bytes) -> None:
    fresh = path.with_suffix(".fresh")
    fresh.write_bytes(content)
    os.replace(fresh, path)


def goes_on(cluster: ProcessCluster, *nodes: NodeProcess) -> None:
    """Wait until more is acknowledged on each node."""
    wanted = {node: sum(node.acknowledged().values()) + 200 for node in nodes}
    cluster.until(
        lambda: all(sum(node.acknowledged().values()) > wanted[node] for node in nodes), "progress"
    )


def test_who_has_no_right_certificate_is_told_why(cluster: TlsCluster) -> None:
    sick, *rest = cluster.voters
    stranger = Authority(cluster.folder, "stranger").issue("member-9")
    trusted = cluster.authority.issue("member-8").authority
    cluster.equip(sick, replace(stranger, authority=trusted))
    for node in (sick, *rest, *cluster.followers):
        node.start()
    cluster.says(sick, rest[0], "hangs up on our certificate")
    cluster.says(rest[0], sick, "certificate verify failed")
    # Its name is another's: the authority has signed it, and still it may not speak here.
    sick.kill()
    cluster.equip(sick, cluster.authority.issue("member-9", host="films9.example"))
    sick.start()
    cluster.says(sick, rest[0], "may not speak as the node")
    cluster.says(rest[0], sick, "not valid for")
    assert sick.call("status")["state"] != "ready"
    sick.kill()
    cluster.equip(sick, cluster.authority.issue("member-9"))
    started(cluster)
    assert sick.call("put", key="in", body="1 x")
    cluster.settle()


def test_plain_text_and_strangers_at_a_tls_port(cluster: TlsCluster) -> None:
    started(cluster)
    node = cluster.leader()
    with (
        cluster.client(node, security=Plaintext()) as plain,
        pytest.raises(Unreachable, match=r"does it want TLS\?"),
    ):
        plain.status()
    host, _, port = node.name.rpartition(":")
    for _ in range(20):
        with socket.create_connection((host, int(port))) as garbage:
            garbage.sendall(b"GET / HTTP/1.1\r\n\r\n" + os.urandom(200))
    unknown = Authority(cluster.folder, "stranger").issue("ops")
    trusted = cluster.authority.issue("guest")
    with (
        cluster.client(node, security=Tls(replace(unknown, authority=trusted.authority))) as wrong,
        pytest.raises(WrongCertificate, match="hangs up on our certificate"),
    ):
        wrong.status()
    with (
        cluster.client(node, security=Tls(trusted)) as guest,
        pytest.raises(NotPermitted, match="Clients/Status is for"),
    ):
        guest.status()
    assert node.call("put", key="still", body="1 x")
    # A node without TLS does not get in either, and says what it thinks of it.
    config = {"members": [node.name], "durability": "os"}
    outsider = NodeProcess(f"127.0.0.1:{free_ports(1)[0]}", cluster.folder / "outsider", config)
    cluster.nodes.append(outsider)
    outsider.start()
    cluster.says(outsider, node, "does it want TLS?")
    assert outsider.call("status")["decided"] == 0
