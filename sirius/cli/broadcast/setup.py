"""From the settings of a proxy to the proxy."""

from __future__ import annotations

import os
from pathlib import Path

from sirius.broadcast.disk.history import open_in
from sirius.broadcast.events import Stream
from sirius.broadcast.history import History
from sirius.broadcast.net.lives import begin_anew
from sirius.broadcast.net.replicas import ReplicaServer, ReplicaSettings
from sirius.broadcast.net.serving import ProxyServer, ProxySettings
from sirius.broadcast.proxy.shelf import OpenHistory
from sirius.config.broadcast import BroadcastConfig
from sirius.transport.security import Security, security_from
from sirius.wal import Durability


def server_of(config: BroadcastConfig) -> ProxyServer | ReplicaServer:
    """Return a proxy that can be started, or a replica of one."""
    return _replica_of(config) if config.replica.proxy else _proxy_of(config)


def _replica_of(config: BroadcastConfig) -> ReplicaServer:
    settings = ReplicaSettings(
        proxy=config.replica.proxy,
        name=config.name,
        listen=config.listen or config.name,
        chains={name: tuple(replicas) for name, replicas in config.chains.items()},
        streams=config.streams,
        cluster=tuple(config.replica.cluster),
        may_found=config.replica.may_found,
        security=security_of(config),
        config=config.proxy_config(),
        chain=config.neighbours,
    )
    return ReplicaServer(settings)


def _proxy_of(config: BroadcastConfig) -> ProxyServer:
    settings = ProxySettings(
        name=config.name,
        listen=config.listen,
        streams=config.streams,
        proxies=tuple(config.proxies),
        security=security_of(config),
        open_history=None if config.data is None else _histories(config, Path(config.data)),
        logs={stream: tuple(nodes) for stream, nodes in config.logs.items()},
        log_bodies=config.log_bodies,
        proxy=config.proxy_config(),
    )
    return ProxyServer(settings)


def _histories(config: BroadcastConfig, folder: Path) -> OpenHistory:
    """Keep the streams that it owns on disk. The others are their owners' to keep, and can be fetched again."""
    folder.mkdir(parents=True, exist_ok=True)
    on_disk = open_in(os.fspath(folder), Durability(config.durability))

    def opened(stream: Stream) -> History:
        return on_disk(stream) if config.streams[stream] == config.name else begin_anew(stream)

    return opened


def security_of(config: BroadcastConfig) -> Security:
    """Return how it shows who it is, and finds out who others are."""
    tls = config.tls
    files = (tls.certificate, tls.key, tls.authority)
    paths = [None if file is None else Path(file) for file in files]
    return security_from(paths, tls.roles, allow_plaintext=config.allow_plaintext)
