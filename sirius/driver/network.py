"""A node on the network: its links, its server, and what clients may ask of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from sirius.config import SiriusConfig
from sirius.driver.files import Call
from sirius.errors import NodeError
from sirius.ops.status import PeerStatus
from sirius.paxos.members import Member
from sirius.paxos.messages import Envelope
from sirius.paxos.values import Numbers
from sirius.transport import wire
from sirius.transport.fetching import Fetch, fetch
from sirius.transport.limits import TransportLimits
from sirius.transport.links import Links
from sirius.transport.publishing import Membership
from sirius.transport.security import Security, security_from
from sirius.transport.server import FILE, Server
from sirius.types import Seq
from sirius.wal import Block, Log, Update

_GRACE_S: Final = 0.5
_TAIL_SLOTS: Final = 4096
_TAIL_POLL_S: Final = 0.02
_HAND_OVER_S: Final = 5.0


def security_of(config: SiriusConfig) -> Security:
    """How this node shows who it is, and finds out who others are."""
    tls = config.tls
    files = [
        None if file is None else Path(file) for file in (tls.certificate, tls.key, tls.authority)
    ]
    return security_from(files, tls.roles, allow_plaintext=config.allow_plaintext)


class Network:
    """The transport of the loop, over gRPC."""

    def __init__(self, config: SiriusConfig, backend: Callable[[], NodeBackend]) -> None:
        limits = TransportLimits(log=config.limits())
        security = security_of(config)
        self._security = security
        self._silence_s = config.catchup.request_timeout_s
        self._links = Links(config.name, limits, security)
        self._server = Server(config.listen_address, security, limits)
        self._backend = backend

    async def start(self, received: Callable[[Sequence[Envelope]], None]) -> None:
        """Listen."""
        await self._server.start(
            lambda envelope: received((envelope,)), self._backend(), self._links.nudge
        )

    def send(self, to: Member, envelope: Envelope, wait_s: float = 0.0) -> None:
        """Send a message, or lose it."""
        self._links.send(to, envelope, wait_s)

    def stream(self, source: Member, envelope: Envelope) -> Call:
        """Return a stream on which a file will come."""
        return Call(partial(self._fetch, source.name), envelope)

    def _fetch(self, address: str, envelope: Envelope) -> Fetch:
        request = wire.frame([wire.encode(envelope)])
        return fetch(address, FILE, request, self._security, self._silence_s)

    def keep(self, names: Collection[str]) -> None:
        """Let go of links to others that nobody has used for a while."""
        self._links.keep(names)

    async def close(self) -> None:
        """Say what is left to say, and listen no more."""
        await self._links.close(_GRACE_S)
        await self._server.close(_GRACE_S)

    def peers(self) -> tuple[PeerStatus, ...]:
        """How each link is; for any thread."""
        return tuple(
            PeerStatus(
                name=link.name,
                connected=link.connected,
                sent_frames=link.frames,
                sent_bytes=link.bytes,
                dropped=link.dropped,
                sent_messages=link.messages,
                waiting=link.waiting,
                connects=link.connects,
                failures=link.failures,
                error=link.last_error or None,
            )
            for link in list(self._links.by_name.values())
        )


class Served(Protocol):
    """What the backend needs of a node."""

    def status_dict(self) -> Mapping[str, Any]: ...
    def membership(self) -> Membership: ...
    def start_hand_over(self, to: str | None) -> None: ...
    @property
    def is_leader(self) -> bool: ...


class NodeBackend:
    """A node as clients and administrators see it; on the loop's thread. See `sirius.transport.publishing.Backend`."""

    def __init__(
        self,
        node: Served,
        publish: Callable[[Sequence[Update], Numbers | None], Any],
        give: Callable[[Envelope], AsyncIterator[bytes]],
        log: Callable[[], Log],
        pool: Executor,
    ) -> None:
        self._node = node
        self.give = give
        self._publish = publish
        self._log = log
        self._pool = pool

    async def publish(self, updates: Sequence[Update], numbers: Numbers | None = None) -> Seq:
        """Have updates decided."""
        return Seq(await self._publish(updates, numbers))

    def status(self) -> Mapping[str, Any]:
        """Return the node's status."""
        return self._node.status_dict()

    def members(self) -> Membership:
        """Return who votes and who leads."""
        return self._node.membership()

    async def transfer_leadership(self, to: str | None) -> None:
        """Hand over, and wait for it."""
        self._node.start_hand_over(to)
        deadline = time.monotonic() + _HAND_OVER_S
        while self._node.is_leader:
            if time.monotonic() > deadline:
                raise NodeError(f"still leading after {_HAND_OVER_S:g} s: is a majority alive?")
            await asyncio.sleep(_TAIL_POLL_S)

    async def tail(self, first: Seq, follow: bool) -> AsyncIterator[Block]:
        """Yield blocks of the log as they are on disk."""
        loop = asyncio.get_running_loop()
        position = max(int(first), 1)
        while True:
            blocks = await loop.run_in_executor(self._pool, _read, self._log(), position)
            for block in blocks:
                yield block
                position = block.last + 1
            if not blocks:
                if not follow:
                    return
                await asyncio.sleep(_TAIL_POLL_S)


def _read(log: Log, first: int) -> list[Block]:
    last = min(log.durable_seq, first + _TAIL_SLOTS - 1)
    return list(log.blocks(first, last)) if first <= last else []
