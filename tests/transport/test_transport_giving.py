"""The method by which a node gives files to others: what it takes for a question, and what it says of failures."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from sirius.catchup.messages import PullFile
from sirius.errors import (
    BadMessage,
    LogError,
    NotPermitted,
    Overloaded,
    SiriusError,
    TransportError,
)
from sirius.paxos.members import Member
from sirius.paxos.messages import Envelope
from sirius.transport.fetching import fetch
from sirius.transport.security import Plaintext, Tls
from sirius.transport.server import FILE
from sirius.types import NodeId, SegmentId, Seq
from tests.transport.certificates import Authority
from tests.transport.harness import (
    PATIENCE_S,
    FakeNode,
    address_of,
    eventually,
    fetched,
    pull,
    run,
    serving,
)

QUESTION = PullFile(SegmentId(3), 250, 10, Seq(7))
CONTENT = bytes([*range(250, 256), 0, 1, 2, 3])


def test_a_file_is_what_was_asked_for() -> None:
    async def test() -> None:
        node = FakeNode()
        async with serving(backend=node) as server:
            assert await fetched(server, pull(QUESTION)) == CONTENT
            assert node.questions == [QUESTION]

    run(test)


@pytest.mark.parametrize(
    "request_",
    [b"", b"\xff\xff", pull(), pull(QUESTION, QUESTION)],
    ids=["0", "bad", "none", "two"],
)
def test_a_request_that_is_no_question_for_one_file_is_refused(request_: bytes) -> None:
    async def test() -> None:
        node = FakeNode()
        async with serving(backend=node) as server:
            with pytest.raises(BadMessage):
                await fetched(server, request_)
            assert (server.bad_messages, node.questions) == (1, [])

    run(test)


@pytest.mark.parametrize("at", [250, 255], ids=["at once", "in the middle"])
@pytest.mark.parametrize(
    "error", [LogError("no such segment"), Overloaded("8 files are on their way")], ids=repr
)
def test_a_reader_hears_why_there_is_no_more(error: SiriusError, at: int) -> None:
    async def test() -> None:
        node = FakeNode()
        node.errors[at] = error
        async with serving(backend=node) as server:
            with pytest.raises(type(error), match=str(error)):
                await fetched(server, pull(QUESTION))

    run(test)


def test_a_bug_tells_strangers_nothing() -> None:
    async def test() -> None:
        node = FakeNode()
        node.errors[252] = ValueError("the password is swordfish")
        async with serving(backend=node) as server:
            with pytest.raises(TransportError, match="an internal error"):
                await fetched(server, pull(QUESTION))

    run(test)


def test_a_file_is_let_go_when_its_reader_has_gone() -> None:
    """It may be one of few that are given at a time."""

    gone = threading.Event()

    class Endless(FakeNode):
        async def give(self, envelope: Envelope) -> AsyncIterator[bytes]:
            self.questions.append(cast(PullFile, envelope.message))
            try:
                while True:
                    yield bytes(100_000)
            finally:
                gone.set()

    async def test() -> None:
        async with serving(backend=Endless()) as server:
            await asyncio.to_thread(read_a_little, address_of(server))
            await eventually(gone.is_set)

    run(test)


def read_a_little(address: str) -> None:
    with closing(fetch(address, FILE, pull(QUESTION), Plaintext(), PATIENCE_S)) as call:
        assert call.read_into(memoryview(bytearray(10))) == 10


def test_nobody_has_files_in_the_name_of_another(tmp_path: Path) -> None:
    async def test() -> None:
        authority, node = Authority(tmp_path), FakeNode()
        tls, caller = Tls(authority.issue("member-1")), Tls(authority.issue("member-2"))
        request = pull(QUESTION, sender=Member(NodeId(7), "films9.example:7400"))
        async with serving(backend=node, security=tls) as server:
            with pytest.raises(NotPermitted, match="may not speak as the node films9"):
                await fetched(server, request, caller)
            assert node.questions == []

    run(test)
