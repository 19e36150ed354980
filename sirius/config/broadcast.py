"""How a proxy of the broadcast layer is set up: `BroadcastConfig`, and its TOML file.

Not loaded with the rest of `sirius.config`: it brings numpy, and a node has no use for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sirius.broadcast.config import ChainConfig, ProxyConfig, RegionConfig
from sirius.broadcast.limits import Limits
from sirius.config import address
from sirius.config.broadcast_chains import NAME, ReplicaTable, check_replica, normal_chains
from sirius.config.kinds import check, refuse
from sirius.config.loading import load_as
from sirius.config.settings import TlsSettings, check_plaintext, unique_names
from sirius.config.source import StrPath, shown
from sirius.errors import UsageError
from sirius.wal import Durability


@dataclass(frozen=True, slots=True, kw_only=True)
class BroadcastConfig:
    """Everything that can be said about a proxy. The same streams and proxies stand in the file of each."""

    name: str = ""
    """The address under which other proxies and clients reach this one."""
    listen: str = ""
    """Where it listens, if that is another address, such as "0.0.0.0:7500"."""
    data: StrPath | None = None
    """The folder of its streams. Without one they are kept in memory, and gone when the proxy ends."""
    durability: Durability | str = Durability.FSYNC
    """When an event counts as published: "fsync", when it is on the disk; "os", when it is written, which survives the
    process; "memory", at once."""
    proxies: Sequence[str] = ()
    """The proxies of all regions."""
    streams: Mapping[str, str] = field(default_factory=dict)
    """Every stream there is, and the proxy that owns it."""
    chains: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The proxies that are chains of replicas, each with the addresses at which a replica may be. If there are any, all
    are: one that needs no replicas is a chain with one address."""
    logs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Streams of this proxy that are the logs of Sirius clusters, each with nodes of its cluster. Only the owner needs
    to say so."""
    log_bodies: bool = False
    """Whether the payloads of such streams are the bodies of the log's updates. Otherwise they have none."""
    allow_plaintext: bool = False
    """Whether to talk to other machines without TLS."""
    tls: TlsSettings = field(default_factory=TlsSettings)
    replica: ReplicaTable = field(default_factory=ReplicaTable)
    neighbours: ChainConfig = field(default_factory=ChainConfig)
    proxy: ProxyConfig = field(default_factory=ProxyConfig)
    region: RegionConfig = field(default_factory=RegionConfig)
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        check(self)
        self._normalise()
        self._check_streams()
        if not self.name:
            raise UsageError('name is missing: expected where others reach this proxy, "host:port"')
        reached = [("name", self.name), *(("listen", each) for each in (self.listen,) if each)]
        lists = {"proxies": self.proxies, "replica.cluster": self.replica.cluster}
        lists |= {f'chains."{name}"': each for name, each in self.chains.items()}
        lists |= {f'logs."{name}"': each for name, each in self.logs.items()}
        reached += [
            (f"{setting}[{at}]", name)
            for setting, names in lists.items()
            for at, name in enumerate(names)
        ]
        check_plaintext(reached, is_allowed=self.tls.is_on or self.allow_plaintext)

    @classmethod
    def load(cls, path: StrPath) -> BroadcastConfig:
        """Read a file. Raises `UsageError` with every mistake in it, each with its line."""
        return load_as(cls, path, {}, {})

    def proxy_config(self) -> ProxyConfig:
        """Return all settings of the machine."""
        return replace(self.proxy, region=self.region, limits=self.limits)

    @property
    def proxy_name(self) -> str:
        """What others call the proxy: its address, or the name of the chain of which this is a replica."""
        return self.replica.proxy or self.name

    def addresses(self) -> tuple[str, ...]:
        """Return where proxies are: all that the file knows, and replicas of all chains."""
        replicas = dict.fromkeys(each for chain in self.chains.values() for each in chain)
        return tuple(replicas) or tuple(self.proxies) or (self.name,)

    def _normalise(self) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        for setting in ("name", "listen"):
            if text := getattr(self, setting):
                put(setting, _address(setting, text))
        if self.name and address.is_wildcard(self.name):
            refuse("name", self.name, address.REACHABLE)
        put("chains", normal_chains(self.chains))
        owners = {
            name: owner if owner in self.chains else _address(f"streams.{name}", owner)
            for name, owner in self.streams.items()
        }
        put("streams", owners)
        logs = {name: unique_names(f'logs."{name}"', nodes) for name, nodes in self.logs.items()}
        put("logs", logs)
        put("proxies", unique_names("proxies", self.proxies))
        put("durability", Durability(self.durability))
        if self.data is not None:
            put("data", Path(self.data))

    def _check_streams(self) -> None:
        if not self.streams:
            raise UsageError("streams is missing: expected a table of streams and their owners")
        for stream, owner in self.streams.items():
            if not NAME.fullmatch(stream):
                refuse(f'streams."{stream}"', owner, "a stream's name: letters, digits, . _ and -")
            if self.proxies and owner not in self.proxies:
                refuse(f'streams."{stream}"', owner, f"one of proxies: {', '.join(self.proxies)}")
        self._check_own()
        self._check_logs()

    def _check_logs(self) -> None:
        for stream, nodes in self.logs.items():
            place, own = f'logs."{stream}"', ", ".join(own_streams(self))
            if self.replica.proxy:
                refuse(place, list(nodes), "nothing: the log of a cluster needs no replicas")
            if self.name and self.streams.get(stream) != self.name:
                refuse(place, list(nodes), f"a stream that name = {shown(self.name)} owns: {own}")
            if not nodes:
                refuse(place, [], "nodes of a Sirius cluster")

    def _check_own(self) -> None:
        check_replica(self.replica, self.name, self.chains, self.streams)
        if self.replica.proxy:
            for setting in ("data", "proxies"):
                if value := getattr(self, setting):
                    refuse(
                        setting,
                        value,
                        "nothing: replicas keep streams in memory, and stand in chains",
                    )
        if self.proxies and self.name and self.name not in self.proxies:
            raise UsageError(
                f"proxies = {shown(list(self.proxies))}: expected name = {shown(self.name)} among them"
            )


def _address(setting: str, text: str) -> str:
    try:
        return address.normal(text)
    except ValueError as error:
        refuse(setting, text, str(error))


def own_streams(config: BroadcastConfig) -> Iterable[str]:
    """Return the streams that a proxy owns."""
    return [stream for stream, owner in config.streams.items() if owner == config.proxy_name]
