"""TLS with the right and with every kind of wrong certificate; roles; and the refusal to talk in the clear."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from sirius.catchup.messages import PullFile
from sirius.errors import NotPermitted, Unreachable, UsageError, WrongCertificate
from sirius.paxos.members import Member
from sirius.paxos.messages import Accepted, Envelope, Hello
from sirius.transport import failures
from sirius.transport.client import Client
from sirius.transport.links import Links
from sirius.transport.security import (
    Plaintext,
    Role,
    Security,
    Tls,
    TlsSettings,
    is_loopback,
    roles_of,
)
from sirius.transport.server import METHODS, Server
from sirius.types import Ballot, NodeId, SegmentId, Seq
from tests.transport.certificates import Authority
from tests.transport.harness import (
    LIMITS,
    PATIENCE_S,
    FakeNode,
    address_of,
    beat,
    eventually,
    fetched,
    link_to,
    linking,
    peer,
    pull,
    puts,
    run,
    serving,
)


class NoCertificate(Tls):
    """A client that trusts the server, and shows nothing itself."""

    def _credentials(self) -> Any:
        return grpc.ssl_channel_credentials(self._settings.authority.read_bytes())

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self._settings.authority)


async def asked(
    server: Server, security: Security, question: Callable[[Client], Any] = Client.status
) -> Any:
    def ask() -> Any:
        with Client([address_of(server)], security, LIMITS, timeout_s=PATIENCE_S) as client:
            return question(client)

    return await asyncio.to_thread(ask)


def other_authority(authority: Authority) -> Authority:
    return Authority(authority.folder, "stranger")


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is wrong with a certificate is found out in time, also on a busy machine."""
    monkeypatch.setattr(failures, "_LOOK_S", PATIENCE_S)


NODE = Member(NodeId(7), "127.0.0.1:7400")
"""What the certificates of these tests are for."""


def hello(sender: Member = NODE) -> Envelope:
    return Envelope(1, 2, sender, NodeId(8), Hello(True))


def vote() -> Envelope:
    return Envelope(1, 2, NODE, NodeId(8), Accepted(Ballot(1, 7), Seq(1), Seq(2)))


def test_the_right_certificates_work(authority: Authority) -> None:
    async def test() -> None:
        tls, client = Tls(authority.issue("member-1")), Tls(authority.issue("client-1"))
        node, got = FakeNode(), list[Envelope]()
        async with (
            serving(got.append, node, security=tls) as server,
            linking(security=tls) as links,
        ):
            links.send(peer(server), hello())
            await eventually(lambda: got == [hello()])
            assert await asked(server, client, lambda each: each.publish(puts(3))) == 3
            assert (await asked(server, client))["state"] == "ready"
            assert len(await asked(server, client, lambda each: list(each.tail()))) == 3

    run(test)


def expired(authority: Authority) -> Tls:
    return Tls(authority.issue("client-1", -3, -2))


def not_yet_valid(authority: Authority) -> Tls:
    return Tls(authority.issue("client-1", 2, 3))


def signed_by_a_stranger(authority: Authority) -> Tls:
    trusted = authority.issue("client-1").authority
    settings = other_authority(authority).issue("client-1")
    return Tls(dataclasses.replace(settings, authority=trusted))


def trusting_a_stranger(authority: Authority) -> Tls:
    trusted = other_authority(authority).issue("client-2").authority
    return Tls(dataclasses.replace(authority.issue("client-1"), authority=trusted))


def without_a_certificate(authority: Authority) -> Tls:
    return NoCertificate(authority.issue("client-1"))


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (expired, "hangs up on our certificate"),
        (not_yet_valid, "hangs up on our certificate"),
        (signed_by_a_stranger, "hangs up on our certificate"),
        (without_a_certificate, "hangs up on our certificate"),
        (trusting_a_stranger, "certificate verify failed"),
    ],
)
def test_a_wrong_certificate_is_called_one_and_the_server_goes_on(
    authority: Authority, wrong: Callable[[Authority], Tls], reason: str
) -> None:
    async def test() -> None:
        tls, good = Tls(authority.issue("member-1")), Tls(authority.issue("client-9"))
        bad = wrong(authority)
        node = FakeNode()
        async with serving(backend=node, security=tls) as server, linking(security=bad) as links:
            with pytest.raises(WrongCertificate, match=reason):
                await asked(server, bad)
            with pytest.raises(WrongCertificate, match=reason):
                await asked(server, bad, lambda client: client.publish(puts(1)))
            links.send(peer(server), beat(1))
            await eventually(lambda: reason in link_to(links, server).last_error)
            assert server.messages == 0
            assert await asked(server, good)
            assert node.batches == []

    run(test)


def test_a_server_whose_certificate_has_expired_is_not_believed(authority: Authority) -> None:
    async def test() -> None:
        tls, good = Tls(authority.issue("member-1", -3, -2)), Tls(authority.issue("client-9"))
        async with serving(backend=FakeNode(), security=tls) as server:
            with pytest.raises(WrongCertificate, match="expired"):
                await asked(server, good)

    run(test)


def test_plain_text_and_garbage_at_a_tls_port_do_not_hurt(authority: Authority) -> None:
    async def test() -> None:
        tls, good = Tls(authority.issue("member-1")), Tls(authority.issue("client-1"))
        async with serving(backend=FakeNode(), security=tls) as server:
            with pytest.raises(Unreachable, match=r"does it want TLS\?"):
                await asked(server, Plaintext())
            for _ in range(50):
                with socket.create_connection(("127.0.0.1", server.port)) as stranger:
                    stranger.sendall(os.urandom(300))
            assert await asked(server, good)

    run(test)


def test_tls_at_a_port_without_it_is_said(authority: Authority) -> None:
    async def test() -> None:
        async with serving(backend=FakeNode()) as server:
            with pytest.raises((WrongCertificate, Unreachable)):
                await asked(server, Tls(authority.issue("client-1")))

    run(test)


FILE = pull(PullFile(SegmentId(1), 5, 3, Seq(0)), sender=NODE)
QUESTIONS: dict[str, Callable[[Client], Any]] = {
    "Clients/Status": Client.status,
    "Clients/Publish": lambda client: client.publish(puts(1)),
    "Clients/Tail": lambda client: list(client.tail()),
    "Admin/Members": Client.members,
    "Admin/TransferLeadership": Client.transfer_leadership,
}


@pytest.mark.parametrize("name", ["member-2", "follower-1", "client-1", "admin", "nobody"])
def test_a_certificate_allows_what_its_roles_allow_and_nothing_else(
    authority: Authority, name: str
) -> None:
    roles = {role for role in Role if role == name.partition("-")[0]}

    async def test() -> None:
        tls, caller = Tls(authority.issue("member-1")), Tls(authority.issue(name))
        async with (
            serving(backend=FakeNode(), security=tls) as server,
            linking(security=caller) as links,
        ):
            for method, question in QUESTIONS.items():
                if roles & set(METHODS[method]):
                    await asked(server, caller, question)
                else:
                    with pytest.raises(NotPermitted, match=f"{method} is for"):
                        await asked(server, caller, question)
            links.send(peer(server), hello())
            if roles & set(METHODS["Nodes/Link"]):
                await eventually(lambda: server.messages == 1)
                assert await fetched(server, FILE, caller) == b"\5\6\7"
            else:
                await eventually(lambda: "Nodes/Link is for" in link_to(links, server).last_error)
                with pytest.raises(NotPermitted, match="Nodes/File is for"):
                    await fetched(server, FILE, caller)

    assert {*QUESTIONS, "Nodes/Link", "Nodes/File"} == METHODS.keys()
    run(test)


def test_a_follower_cannot_vote(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        got: list[Envelope] = []
        tls, follower = Tls(authority.issue("member-1")), Tls(authority.issue("follower-1"))
        async with serving(got.append, security=tls) as server:
            async with linking(security=follower) as links:
                for each in (vote(), vote(), hello()):
                    links.send(peer(server), each)
                await eventually(lambda: server.messages == 3)
                assert got == [hello()]
                assert server.refused_messages == 2
            async with linking(security=tls) as links:
                links.send(peer(server), vote())
                await eventually(lambda: len(got) == 2)

    run(test)
    assert sum("a follower sends Accepted" in each.getMessage() for each in caplog.records) == 1


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("films9.example", "127.0.0.1:7400"),
        ("127.0.0.1", "films9.example:7400"),
        ("127.0.0.1", "127.0.0.11:7400"),
        ("*.example", "films1.europe.example:7400"),
        ("127.0.0.1", "member-9"),
        ("127.0.0.1", ""),
    ],
)
def test_a_certificate_of_one_node_does_not_speak_for_another(
    authority: Authority, host: str, name: str
) -> None:
    async def test() -> None:
        got: list[Envelope] = []
        tls, other = Tls(authority.issue("member-1")), Tls(authority.issue("member-9", host=host))
        async with (
            serving(got.append, security=tls) as server,
            linking(security=other) as links,
        ):
            links.send(peer(server), hello(Member(NodeId(7), name)))
            await eventually(lambda: link_to(links, server).last_error)
            said = link_to(links, server).last_error
            assert f"a certificate for member-9, {host} may not speak as the node {name}" in said
            assert got == []

    run(test)


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("films9.example", "films9.example:7400"),
        ("*.example", "films9.example:7400"),
        ("::1", "[::1]:7400"),
    ],
)
def test_a_certificate_speaks_for_the_hosts_that_it_names(
    authority: Authority, host: str, name: str
) -> None:
    async def test() -> None:
        got: list[Envelope] = []
        tls, other = Tls(authority.issue("member-1")), Tls(authority.issue("member-9", host=host))
        async with (
            serving(got.append, security=tls) as server,
            linking(security=other) as links,
        ):
            links.send(peer(server), hello(Member(NodeId(7), name)))
            await eventually(lambda: len(got) == 1)

    run(test)


@pytest.mark.parametrize("name", ["no-port", "127.0.0.1:what", "", "x" * 300 + ":1", "[::1"])
def test_a_name_that_is_no_address_is_a_lost_peer_and_no_more(
    authority: Authority, name: str
) -> None:
    async def test() -> None:
        async with linking(security=Tls(authority.issue("member-1"))) as links:
            links.send(Member(NodeId(8), name), beat(1))
            await eventually(lambda: links.by_name[name].dropped == 1)
            await eventually(lambda: links.by_name[name].last_error)
            links.send(Member(NodeId(8), name), beat(2))
            await eventually(lambda: links.by_name[name].dropped == 2)

    run(test)


def test_new_files_count_without_a_restart(authority: Authority) -> None:
    async def test() -> None:
        new = Authority(authority.folder, "authority")
        settings = authority.issue("member-1")
        old_client = Tls(copied(authority.issue("client-1"), "old"))
        tls = Tls(settings)
        got: list[Envelope] = []
        async with serving(got.append, FakeNode(), security=tls) as server:
            assert await asked(server, old_client)
            new.issue("member-1")
            new_client = Tls(new.issue("client-2"))
            assert await asked(server, new_client)
            with pytest.raises(WrongCertificate):
                await asked(server, old_client)
            links = Links("me", LIMITS, tls)
            links.send(peer(server), hello())
            await eventually(lambda: got == [hello()])
            await links.close()

    run(test)


def copied(settings: TlsSettings, suffix: str) -> TlsSettings:
    """The same files under other names."""

    def copy(path: Path) -> Path:
        other = path.with_suffix(f".{suffix}{path.suffix}")
        other.write_bytes(path.read_bytes())
        return other

    certificate, key = copy(settings.certificate), copy(settings.key)
    return TlsSettings(certificate, key, copy(settings.authority), settings.roles)


def test_files_that_do_not_fit_yet_change_nothing(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        settings, good = authority.issue("member-1"), Tls(authority.issue("client-1"))
        key = settings.key.read_bytes()
        async with serving(backend=FakeNode(), security=Tls(settings)) as server:
            authority.issue("member-1")
            settings.key.write_bytes(key)
            assert await asked(server, good)
            settings.key.unlink()
            assert await asked(server, good)

    run(test)
    assert any("stay as they were" in record.getMessage() for record in caplog.records)


def test_files_that_do_not_fit_are_an_error_at_the_start(authority: Authority) -> None:
    settings = authority.issue("member-1")
    other = authority.issue("member-2")
    with pytest.raises(UsageError, match="do not fit together"):
        Tls(dataclasses.replace(settings, key=other.key))
    with pytest.raises(UsageError, match="No such file"):
        Tls(dataclasses.replace(settings, key=Path("/no/such/key")))
    settings.authority.write_text("nonsense")
    with pytest.raises(UsageError, match="do not fit together"):
        Tls(settings)


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.org:0", ":0"])
def test_a_server_without_tls_does_not_listen_to_the_world(listen: str) -> None:
    async def test() -> None:
        with pytest.raises(UsageError, match="allow_plaintext"):
            await Server(listen, Plaintext(), LIMITS).start(lambda _: None)

    run(test)


def test_a_server_listens_to_the_world_in_the_clear_if_told_so_in_so_many_words() -> None:
    async def test() -> None:
        security = Plaintext(allow_plaintext=True)
        async with serving(backend=FakeNode(), listen="0.0.0.0:0", security=security) as server:
            assert await asked(server, security)

    run(test)


def test_a_link_without_tls_does_not_leave_the_machine(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def test() -> None:
        async with linking() as links:
            links.send(Member(NodeId(8), "192.0.2.1:9"), beat(1))
            (link,) = links.by_name.values()
            await eventually(lambda: "allow_plaintext" in link.last_error)

    run(test)
    with Client(["192.0.2.1:9"]) as client, pytest.raises(UsageError, match="allow_plaintext"):
        client.status()


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:1", True),
        ("127.8.8.8:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("localhost.example.org:1", False),
        ("127.0.0.1.example.org:1", False),
        ("0.0.0.0:1", False),
        ("127.0.0.1", False),
    ],
)
def test_loopback(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected


def test_roles_follow_from_any_name_and_nothing_from_none() -> None:
    roles = {"*.members.example": {Role.MEMBER}, "ops": {Role.ADMIN, Role.CLIENT}}
    assert roles_of(["x", "a.members.example"], roles) == {Role.MEMBER}
    assert roles_of(["ops"], roles) == {Role.ADMIN, Role.CLIENT}
    assert roles_of(["OPS", "members.example", "opsy"], roles) == set()
    assert roles_of([], {"*": {Role.ADMIN}}) == set()
