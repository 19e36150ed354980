"""A proxy with its port: the machine, its histories, and what it says about itself.

**How fresh.** Whoever caches wants to know how old it can be at most. The owner of a stream knows the end of it. Every
other proxy asks the owners, again and again, and remembers what they said and when it asked: clocks are not compared.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final, Protocol, runtime_checkable

from sirius.broadcast.config import ProxyConfig
from sirius.broadcast.events import Stream
from sirius.broadcast.history import History
from sirius.broadcast.messages import Peer
from sirius.broadcast.net.asking import Json, ask_always
from sirius.broadcast.net.homes import ProxyHome
from sirius.broadcast.net.hub import Hub
from sirius.broadcast.net.lives import begin_anew, begin_life
from sirius.broadcast.net.logs import LogFeed
from sirius.broadcast.proxy.machine import Proxy
from sirius.broadcast.proxy.shelf import Layout, OpenHistory
from sirius.transport.limits import TransportLimits
from sirius.transport.security import Plaintext, Security

_TEND_S: Final = 5.0
_COMPACT_MIN: Final = 100_000


@runtime_checkable
class Lasting(Protocol):
    """A history that survives its process, and wants to be looked after."""

    @property
    def grown(self) -> int:
        """How many events have come since it was compacted."""
        ...

    def __len__(self) -> int: ...

    def on_ready(self, callback: Callable[[int], None]) -> None:
        """Have `callback` called, on another thread, when more counts."""
        ...

    def compaction(self) -> Callable[[], object]:
        """Return what forgets what was collected, on any thread."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings:
    """What a proxy is told at the start."""

    streams: Mapping[str, str]
    """All streams there are, and the proxy that owns each: the same at every proxy. Nobody: this one."""
    name: str = ""
    """The address under which others reach it; nothing: the one it listens on."""
    proxies: tuple[str, ...] = ()
    """All proxies; this one need not be among them."""
    listen: str = ""
    """Where it listens, if that is another address. Port 0: any."""
    security: Security = field(default_factory=Plaintext)
    open_history: OpenHistory | None = None
    """None: in memory, see `sirius.broadcast.net.lives`."""
    logs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Own streams that are the logs of Sirius clusters, each with nodes of its cluster. They are read again after a
    restart, and so kept in memory."""
    log_bodies: bool = False
    """Whether the payloads of such streams are the bodies of the updates. Otherwise they have none."""
    proxy: ProxyConfig = field(default_factory=ProxyConfig)
    transport: TransportLimits = field(default_factory=TransportLimits)

    def layout(self, me: str) -> Layout:
        """Return who owns what, as seen by the proxy `me`."""
        owners = {Stream(name): Peer(owner or me) for name, owner in self.streams.items()}
        return Layout(tuple(map(Peer, dict.fromkeys((*self.proxies, *owners.values())))), owners)


class ProxyServer:
    """Runs on one asyncio loop: `await start()`, `await close()`."""

    def __init__(self, settings: ProxySettings) -> None:
        self._settings = settings
        self._told: dict[Stream, tuple[int, float]] = {}
        """Of foreign streams: what the owner said, and when it was asked."""
        self._tasks: list[asyncio.Task[None]] = []
        self._feeds: dict[Stream, LogFeed] = {}
        self._began = time.monotonic()
        self.hub = Hub(
            settings.listen or settings.name,
            settings.security,
            settings.transport,
            settings.proxy.limits,
            name=settings.name or None,
            status=self.status,
        )

    async def start(self) -> str:
        """Open the histories, listen, and take part; return the address."""
        name = self._settings.name
        self._me = me = Peer(name or await self.hub.start())
        self._layout = self._settings.layout(me)
        self.proxy = self._new_proxy()
        if name:
            await self.hub.start()
        self.hub.take_in(me, ProxyHome(self.proxy), lambda _: None)
        self._feeds = {Stream(name): self._feed(Stream(name)) for name in self._settings.logs}
        owners = {owner for owner in self._layout.owners.values() if owner != me}
        self._tasks = [asyncio.create_task(self._ask_always(owner)) for owner in sorted(owners)]
        self._tasks.append(asyncio.create_task(self._tend()))
        return me

    def _new_proxy(self) -> Proxy:
        settings = self._settings
        return Proxy(
            self._me,
            self._layout,
            self._open,
            settings.proxy,
            random.Random(),
            now=time.monotonic(),
            life=time.time_ns(),
        )

    def _feed(self, stream: Stream) -> LogFeed:
        settings = self._settings
        return LogFeed(
            self.hub,
            self.proxy,
            stream,
            settings.logs[stream],
            settings.security,
            bodies=settings.log_bodies,
        )

    def _open(self, stream: Stream) -> History:
        if stream in self._settings.logs:
            return begin_anew(stream)
        return (self._settings.open_history or self._in_memory)(stream)

    def _in_memory(self, stream: Stream) -> History:
        is_own = self._layout.owners[stream] == self._me
        return begin_life(stream) if is_own else begin_anew(stream)

    async def close(self) -> None:
        """Take part no more."""
        for feed in self._feeds.values():
            await feed.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.hub.close()
        for history in self._lasting():
            history.close()

    # ------------------------------------------------------------------ histories on disk

    def _lasting(self) -> list[Lasting]:
        if not hasattr(self, "proxy"):
            return []
        found = [self.proxy.history(stream) for stream in self._layout.owners]
        return [history for history in found if isinstance(history, Lasting)]

    async def _tend(self) -> None:
        """Let what is safe on the disk count as soon as it is, and compact a log when much of it is dead."""
        loop = asyncio.get_running_loop()

        def is_ready(_: int) -> None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._settle)

        for history in self._lasting():
            history.on_ready(is_ready)
        while True:
            await asyncio.sleep(_TEND_S)
            for history in self._lasting():
                if history.grown > max(_COMPACT_MIN, 2 * len(history)):
                    await asyncio.to_thread(history.compaction())

    def _settle(self) -> None:
        self.proxy.at(time.monotonic(), time.time_ns() // 1000)
        self.hub.carry_out(self._me, self.proxy.settle())

    # ------------------------------------------------------------------ what it says about itself

    def status(self) -> dict[str, Any]:
        """See docs/broadcast.md for the fields."""
        proxy, settings = self.proxy, self._settings
        return {
            "name": self._me,
            "uptime_s": time.monotonic() - self._began,
            "proxies": list(self._layout.proxies),
            "streams": {stream: self._stream(stream, seq) for stream, seq in proxy.counts},
            "clients": len(proxy.view),
            "bad_messages": self.hub.bad_messages + proxy.bad_messages,
            "refused_messages": self.hub.refused_messages,
            "failures": self.hub.failures,
            "limits": asdict(settings.proxy.limits),
            "region": asdict(settings.proxy.region),
        }

    def _stream(self, stream: Stream, seq: int) -> dict[str, Any]:
        if stream in self._feeds:
            return self._stream_of_log(stream, seq)
        owner = self._layout.owners[stream]
        is_own = owner == self._me
        known, asked_at = (seq, None) if is_own else self._told.get(stream, (seq, None))
        age_s = 0.0 if is_own else None if asked_at is None else time.monotonic() - asked_at
        return {
            "owner": owner,
            "count": seq,
            "known": known,
            "age_s": age_s,
            "source": None if is_own else self.proxy.source(stream),
            "bytes": self.proxy.history(stream).nbytes,
        }

    def _stream_of_log(self, stream: Stream, seq: int) -> dict[str, Any]:
        """The log may have more than came from it: nobody here knows how fresh this is."""
        return {
            "owner": self._me,
            "count": seq,
            "known": seq,
            "age_s": None,
            "source": None,
            "log": list(self._settings.logs[stream]),
            "failure": self._feeds[stream].failure,
            "bytes": self.proxy.history(stream).nbytes,
        }

    async def _ask_always(self, owner: Peer) -> None:
        settings = self._settings
        await ask_always(owner, settings.security, settings.transport, partial(self._heard, owner))

    def _heard(self, owner: Peer, told: Json, asked_at: float) -> None:
        for stream, said in told.get("streams", {}).items():
            is_his = self._layout.owners.get(stream) == owner and said.get("owner") == owner
            if is_his and (age_s := said.get("age_s")) is not None:
                self._told[stream] = said["count"], asked_at - age_s
