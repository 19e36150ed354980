"""Replicas as real processes that are killed while somebody publishes; and the log that decides who they are."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sirius import Sirius, SiriusConfig
from sirius.broadcast.chain.configuration import Chain, Member
from sirius.broadcast.chain.routes import Routes
from sirius.broadcast.client import Client
from sirius.broadcast.config import ClientConfig
from sirius.broadcast.context import Effects
from sirius.broadcast.events import Event, EventBatch, Kind, Stream
from sirius.broadcast.live import connect
from sirius.broadcast.messages import Peer, Published
from sirius.broadcast.net.asking import status_of
from sirius.broadcast.net.configurations import Configurations, Decisions, chain_of, update_of
from sirius.broadcast.net.homes import ClientHome
from sirius.broadcast.net.hub import Hub
from sirius.errors import SiriusError
from sirius.testing.processes import free_ports
from sirius.transport.security import Plaintext
from sirius.types import Seq
from sirius.wal.record import Op, Record
from tests.node.nodes import SMALL, Dict

P, S = Peer("films"), Stream("s")
A, B, C = Member(Peer("a:1"), 1), Member(Peer("b:1"), 1), Member(Peer("c:1"), 1)
ROOT = Path(__file__).parents[3]
LIMIT_S = 120.0


# ---------------------------------------------------------------------- what a log decides


def record(seq: int, chain: Chain, proposer: Member, attempt: int = 1) -> Record:
    update = update_of(P, chain, proposer, attempt)
    return Record(Seq(seq), 0, update.op, update.key.decode(), update.body)


def test_a_proposal_comes_back_as_it_was() -> None:
    for chain in (Chain(1, (A,)), Chain(7, (A, B), C)):
        assert chain_of(record(1, chain, A)) == chain


def test_of_all_with_a_number_the_first_one_counts() -> None:
    decisions = Decisions(P)
    assert decisions.take([record(1, Chain(1, (A,)), A), record(2, Chain(1, (B,)), B)])
    assert decisions.chain == Chain(1, (A,))
    assert not decisions.take([record(3, Chain(1, (C,)), C)])
    assert decisions.take([record(4, Chain(2, (A,), C), C)])
    assert decisions.chain == Chain(2, (A,), C)


def test_what_is_deleted_does_not_change_what_was_decided() -> None:
    """Whoever reads a log of which everything old is gone comes to the same end."""
    records = [
        record(1, Chain(1, (A,)), A),
        record(2, Chain(2, (A,), B), B),
        record(3, Chain(2, (A,), C), C),
        record(4, Chain(3, (A, B)), A, attempt=2),
    ]
    decisions = Decisions(P)
    decisions.take(records)
    gone = decisions.needless()
    assert gone == [records[0].key]
    decisions.take([Record(Seq(5), 0, Op.DELETE, gone[0], b"")])
    assert decisions.needless() == []
    late = Decisions(P)
    late.take(each for each in records if each.key not in gone)
    assert late.chain == decisions.chain == Chain(3, (A, B))


def test_other_keys_and_rubbish_are_nobodys_configuration() -> None:
    decisions = Decisions(P)
    others = record(1, Chain(1, (A,)), A)._replace(key="chain/series/1/a:1@1.1")
    rubbish = [
        others._replace(key=f"chain/films/1/{n}", body=b) for n, b in enumerate([b"", b"{}"])
    ]
    assert not decisions.take([others, *rubbish, others._replace(key="title/x")])
    assert decisions.chain == Chain()


def test_a_node_decides_between_two_and_again_when_it_is_back(tmp_path: Path) -> None:
    """Both are told the same; while the node is away nothing is decided, and nothing is forgotten."""
    name = f"127.0.0.1:{free_ports(1)[0]}"
    config = SiriusConfig(name=name, members=[name], data=tmp_path, log=SMALL, durability="os")
    told: dict[Member, list[Chain]] = {A: [], B: []}

    async def decide(services: list[Configurations], chains: list[Chain], count: int) -> Chain:
        """Propose again and again, as replicas do, until both were told."""
        while [len(each) for each in told.values()] != [count, count]:
            for service, chain in zip(services, chains, strict=True):
                service.propose(chain)
            await asyncio.sleep(0.1)
        assert told[A] == told[B]
        return told[A][-1]

    async def story() -> None:
        node = Sirius(Dict(), config)
        services = [Configurations([name], P, me, told[me].append) for me in (A, B)]
        try:
            assert await asyncio.to_thread(node.wait_until_ready, 60)
            first = await decide(services, [Chain(1, (A,)), Chain(1, (B,))], 1)
            assert first in (Chain(1, (A,)), Chain(1, (B,)))
            await asyncio.to_thread(node.close)
            node = Sirius(Dict(), config)
            assert await asyncio.to_thread(node.wait_until_ready, 60)
            second = Chain(2, first.members, C)
            assert await decide(services, [second, second], 2) == second
        finally:
            for service in services:
                await asyncio.to_thread(service.close)
            await asyncio.to_thread(node.close)

    asyncio.run(asyncio.wait_for(story(), LIMIT_S))


# ---------------------------------------------------------------------- real processes


class Replicas:
    """Three replicas, each a process."""

    def __init__(self, cluster: str) -> None:
        self.addresses = [f"127.0.0.1:{port}" for port in free_ports(3)]
        self._cluster = cluster
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def start(self, address: str) -> None:
        arguments = [P, address, self._cluster, ",".join(self.addresses)]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.broadcast.net.replica_process", *arguments],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.processes[address] = process
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"

    def kill(self, address: str) -> None:
        process = self.processes.pop(address)
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()

    def members(self) -> list[str]:
        """Who the replicas are, by the word of one that is one."""
        for address in self.processes:
            try:
                status = status_of(address, Plaintext(), 5.0)
            except SiriusError:
                continue
            if status["is_member"]:
                return list(status["replicas"])
        return []

    def all_members(self) -> list[str]:
        """Wait until all three are replicas: one that was busy for a while may have been left out, and joins again."""
        found: list[str] = []

        def is_whole() -> bool:
            found[:] = self.members()
            return len(found) == len(self.addresses)

        eventually(is_whole)
        return found


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    """A Sirius node that decides, and three replicas in a chain."""
    (port,) = free_ports(1)
    name = f"127.0.0.1:{port}"
    config = SiriusConfig(
        name=name, members=[name], data=tmp_path / "log", log=SMALL, durability="os"
    )
    with Sirius(Dict(), config) as node:
        assert node.wait_until_ready(60)
        made = Replicas(name)
        try:
            for address in made.addresses:
                made.start(address)
                eventually(lambda address=address: address in made.members())  # type: ignore[misc]
            yield made
        finally:
            for address in list(made.processes):
                made.kill(address)


def eventually(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.02)


class Publisher:
    """A client that publishes numbers, one after the other, and gets them all."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.me = Peer(f"{hub.address}/c")
        self.client = Client(
            self.me,
            P,
            {S: P},
            ClientConfig(publish_retry_s=0.2),
            random.Random(1),
            now=time.monotonic(),
            publisher=77,
        )
        self.client.subscribe(S)
        self.answers: list[Published] = []
        self.got: list[Event] = []
        self.published = 0
        hub.take_in(self.me, ClientHome(self.client), self._take)

    def _take(self, effects: Effects) -> None:
        for answer in effects.answers:
            assert isinstance(answer, Published)
            self.answers.append(answer)
        for stream, batch in effects.deliver:
            self.got += batch.events()
            self._hub.carry_out(self.me, self.client.consumed(stream, batch.last))

    async def publish(self, count: int) -> None:
        """Publish, and wait for the answers."""
        for _ in range(count):
            self.published += 1
            batch = EventBatch.of([str(self.published).encode()], Kind.DATA)
            self.client.at(time.monotonic())
            _, effects = self.client.publish(S, batch)
            self._hub.carry_out(self.me, effects)
        await until(lambda: len(self.answers) == self.published)


async def until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < limit, "it did not come to that"
        await asyncio.sleep(0.01)


@asynccontextmanager
async def publisher(replicas: Replicas) -> AsyncIterator[Publisher]:
    chains = {P: tuple(map(Peer, replicas.addresses))}
    hub = Hub("127.0.0.1:0", Plaintext(), routes=Routes(chains, 0.3))
    await hub.start()
    try:
        yield Publisher(hub)
    finally:
        await hub.close()


def test_replicas_are_killed_while_somebody_publishes_and_nothing_is_lost_or_comes_twice(
    replicas: Replicas,
) -> None:
    """kill -9 of the head, the middle and the tail in turn; each comes back with nothing, and joins."""

    async def story() -> Publisher:
        async with publisher(replicas) as made:
            await made.publish(50)
            for place in (0, 1, 2):
                victim = (await asyncio.to_thread(replicas.all_members))[place]
                publishing = asyncio.create_task(made.publish(100))
                await until(lambda: made.client.unpublished < 80)
                replicas.kill(victim)
                await publishing
                replicas.start(victim)
                await asyncio.to_thread(replicas.all_members)
                await made.publish(20)
            await until(lambda: len(made.got) >= made.published)
            return made

    made = asyncio.run(story())
    assert made.published == 50 + 3 * 120
    assert [event.key for event in made.got] == [b"%d" % n for n in range(1, made.published + 1)]
    assert [event.seq for event in made.got] == list(range(1, made.published + 1))
    assert [(answer.first, answer.serial) for answer in made.answers] == [
        (n, n) for n in range(1, made.published + 1)
    ]


@pytest.mark.deep
def test_a_session_publishes_to_a_chain_and_goes_on_when_its_replica_is_gone(
    replicas: Replicas,
) -> None:
    """What an application touches works with a replicated proxy as with any other."""
    with connect(replicas.addresses) as session, session.subscribe("s") as subscription:
        receipts = [session.publish("s", f"k{number}") for number in range(20)]
        victim = replicas.all_members()[-1]
        replicas.kill(victim)
        receipts += [session.publish("s", f"k{number}") for number in range(20, 40)]
        assert [receipt.result(LIMIT_S) for receipt in receipts] == list(range(1, 41))
        keys = []
        for event in subscription:
            keys.append(event.key)
            if len(keys) == 40:
                break
        assert keys == [b"k%d" % number for number in range(40)]
        assert session.status()["name"] == P
