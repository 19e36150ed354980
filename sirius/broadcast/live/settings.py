"""Everything that can be said about a session, and where it is on the network."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from sirius.broadcast.config import ClientConfig
from sirius.broadcast.live.publishing import Room
from sirius.broadcast.net.asking import Json, status_of
from sirius.errors import Unreachable, UsageError
from sirius.transport.limits import TransportLimits
from sirius.transport.security import (
    Plaintext,
    Role,
    Security,
    host_of,
    is_loopback,
    security_from,
)

StrPath = str | PathLike[str]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """Everything that can be said about a session; the defaults suit a service that caches."""

    certificate: StrPath | None = None
    """The file (PEM) with the certificate to show to the proxy and to other clients; with `key` and `authority`."""
    key: StrPath | None = None
    authority: StrPath | None = None
    """Who has signed the others' certificates. Clients of a region believe each other."""
    allow_plaintext: bool = False
    """Whether to talk to other machines without TLS."""
    security: Security | None = None
    """All of that in one, for those who have it."""
    listen: str | None = None
    """Where other clients of the region reach this one. Port 0: any."""
    name: str | None = None
    """The address under which they do, if it is another."""
    client: ClientConfig | None = None
    """None: the defaults, with the `region` of the proxy."""
    transport: TransportLimits = field(default_factory=TransportLimits)
    room: Room = field(default_factory=Room)
    timeout_s: float = 10.0
    """How long `connect` waits for the proxy."""

    silence_s: float = 10.0
    """How long nothing may come to subscriptions before the log says so."""

    def secured(self) -> SessionSettings:
        """Return the same with `security`. Raises `UsageError` if files are missing or do not fit."""
        if self.security is not None:
            return self
        given = (self.certificate, self.key, self.authority)
        files = [None if file is None else Path(file) for file in given]
        if any(files) and None in files:
            raise UsageError("certificate, key and authority belong together")
        everybody = {"*": (Role.CLIENT,)}
        security = security_from(files, everybody, allow_plaintext=self.allow_plaintext)
        return replace(self, security=security)


def ask(address: str, settings: SessionSettings, timeout_s: float) -> Json:
    """Ask a proxy about itself."""
    return status_of(address, settings.security or Plaintext(), timeout_s, settings.transport)


def told(kind: type[T], values: Mapping[str, Any]) -> T:
    """Make settings of what a proxy has told. One of another version may have some that are not known here."""
    known = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in values.items() if name in known})


def own_host(proxy: str) -> str:
    """Return the address of this machine that a proxy can reach. Nothing is sent for it."""
    if is_loopback(proxy):
        return "127.0.0.1"
    host, port = host_of(proxy), int(proxy.rpartition(":")[2])
    try:
        info = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(info[0], socket.SOCK_DGRAM) as probe:
            probe.connect(info[4])
            own = str(probe.getsockname()[0])
    except OSError as error:
        raise Unreachable(
            f"{proxy}: {error.strerror}: give listen, where others reach you"
        ) from None
    return f"[{own}]" if ":" in own else own
