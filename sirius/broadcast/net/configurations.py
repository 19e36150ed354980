"""A Sirius cluster as the service that decides who the replicas of a proxy are.

A proposal is a PUT under a key of its own: `chain/<proxy>/<number>/<proposer>.<attempt>`. Of all with a number, the one
that comes first in the log counts; whoever reads the log knows which that is, and everybody reads the same log. No key
is written twice, so compaction changes nothing, and whatever else the cluster is for need not know of it. Proposals of
long ago are deleted with the next one.

Two threads: one follows the log, one writes. The loop of the replica is told of each decision.
"""

from __future__ import annotations

import asyncio
import json
import logging
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Final

from sirius.broadcast.chain.configuration import Chain, Member
from sirius.broadcast.messages import Peer
from sirius.transport.client import Client
from sirius.transport.security import Security
from sirius.wal.batch import Batch
from sirius.wal.record import Op, Record, Update

log = logging.getLogger("sirius.broadcast")
_RETRY_S: Final = 0.2
_TIMEOUT_S: Final = 2.0
_CLOSE_S: Final = 0.05
_WAITING_MAX: Final = 4


def update_of(proxy: Peer, chain: Chain, proposer: Member, attempt: int) -> Update:
    """Return what puts a proposal into the log. `attempt` is another one each time."""
    key = f"{_prefix(proxy)}{chain.number}/{proposer.peer}@{proposer.life}.{attempt}"
    return Update(Op.PUT, key.encode(), json.dumps(chain._asdict()).encode())


def _prefix(proxy: Peer) -> str:
    return f"chain/{proxy}/"


def chain_of(record: Record) -> Chain | None:
    """Return what a record proposes; None if it is something else."""
    try:
        fields = json.loads(record.body)
        members = tuple(Member(Peer(peer), int(life)) for peer, life in fields["members"])
        joining = fields["joining"] and Member(
            Peer(fields["joining"][0]), int(fields["joining"][1])
        )
        return Chain(int(fields["number"]), members, joining)
    except (LookupError, TypeError, ValueError):
        return None


class Decisions:
    """What a log has decided about one proxy. Pure: records go in, in the order of the log."""

    def __init__(self, proxy: Peer) -> None:
        self._prefix = _prefix(proxy)
        self.chain = Chain()
        self._keys: dict[str, int] = {}

    def take(self, records: Iterable[Record]) -> bool:
        """Take what the log says; say whether something was decided."""
        before = self.chain.number
        for record in records:
            if not record.key.startswith(self._prefix):
                continue
            if record.op == Op.DELETE:
                self._keys.pop(record.key, None)
            elif (chain := chain_of(record)) is not None:
                self._keys[record.key] = chain.number
                if chain.number > self.chain.number:
                    self.chain = chain
        return self.chain.number > before

    def needless(self) -> list[str]:
        """Return the keys that nobody needs: not the newest configuration, nor the one before."""
        return [key for key, number in self._keys.items() if number < self.chain.number - 1]


class Configurations:
    """See the module. `decided` is called on the loop, with each new configuration."""

    def __init__(
        self,
        addresses: Sequence[str],
        proxy: Peer,
        me: Member,
        decided: Callable[[Chain], None],
        security: Security | None = None,
    ) -> None:
        self._addresses, self._security = list(addresses), security
        self._proxy, self._me, self._decided = proxy, me, decided
        self._loop = asyncio.get_running_loop()
        self._decisions = Decisions(proxy)
        self._needless: list[str] = []
        self._attempts = count(1)
        self._waiting: queue.Queue[Chain | None] = queue.Queue(_WAITING_MAX)
        self._is_closed = threading.Event()
        self._reader, self._writer = self._client(), self._client()
        self._threads = [
            threading.Thread(target=each, name="sirius-chain", daemon=True)
            for each in (self._follow, self._write)
        ]
        for thread in self._threads:
            thread.start()

    def propose(self, chain: Chain) -> None:
        """Put a proposal into the log. Whether it counts is told by `decided`, or by that of another one."""
        if not self._waiting.full():
            self._waiting.put_nowait(chain)

    def close(self) -> None:
        """Follow and write no more. Blocks for a moment."""
        self._is_closed.set()
        while any(thread.is_alive() for thread in self._threads):
            # A thread that was about to begin begins once more.
            for client in (self._reader, self._writer):
                client.close()
            if not self._waiting.full():
                self._waiting.put_nowait(None)
            self._threads[0].join(_CLOSE_S)

    def _client(self) -> Client:
        return Client(self._addresses, self._security, timeout_s=_TIMEOUT_S)

    # ------------------------------------------------------------------ following

    def _follow(self) -> None:
        position = 0
        while not self._is_closed.is_set():
            with self._client() as self._reader:
                try:
                    for block in self._reader.tail(position + 1, follow=True):
                        self._take(Batch.of(block))
                        position = block.last
                except Exception as error:
                    # Also what gRPC raises about a channel that was closed just now. A node that is gone comes back.
                    log.debug("%s: no configurations: %s", self._proxy, error)
            self._is_closed.wait(_RETRY_S)

    def _take(self, batch: Batch) -> None:
        is_new = self._decisions.take(batch.records())
        self._needless = self._decisions.needless()
        if is_new and not self._is_closed.is_set():
            self._loop.call_soon_threadsafe(self._decided, self._decisions.chain)

    # ------------------------------------------------------------------ writing

    def _write(self) -> None:
        with self._writer:
            while not self._is_closed.is_set():
                chain = self._waiting.get()
                if chain is not None and chain.number > self._decisions.chain.number:
                    self._put(chain)

    def _put(self, chain: Chain) -> None:
        mine = update_of(self._proxy, chain, self._me, next(self._attempts))
        old = [Update(Op.DELETE, key.encode()) for key in self._needless]
        try:
            self._writer.publish([mine, *old], in_flight=1)
        except Exception as error:
            # It is proposed again if it is still wanted.
            log.warning(
                "%s: configuration %d was not written: %s", self._proxy, chain.number, error
            )
