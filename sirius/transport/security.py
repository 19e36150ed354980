"""Who may talk to whom, and how.

**In the clear** a node talks to its own machine alone, where everybody may do everything; for anything else somebody
has to write `allow_plaintext=True`. **With TLS** both ends show a certificate that the same authority has signed, and
the names in it give its owner roles; who has none may do nothing. The files are read again when they have changed: a
server uses the new ones from the next connection on, and every new channel does.

A node may speak for itself alone: its certificate must name the host of the node's name, as it must anyway for others
to connect to it. Ports are in no certificate, so nodes that share a host are trusted to say which of them they are.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import ssl
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import grpc

from sirius.errors import UsageError
from sirius.transport.limits import Options

log = logging.getLogger("sirius.transport")


class Role(StrEnum):
    """What the owner of a certificate is."""

    MEMBER = "member"
    FOLLOWER = "follower"
    CLIENT = "client"
    ADMIN = "admin"


EVERYTHING: Final = frozenset(Role)


class Security(Protocol):
    """How ports and channels are opened. Called on any thread; reads small files."""

    def bind(self, server: Any, listen: str) -> int:
        """Open a port of a gRPC server that does not run yet, and return its number."""
        ...

    def channel(self, address: str, options: Options) -> Any:
        """Return a new channel of `grpc.aio`."""
        ...

    def blocking_channel(self, address: str, options: Options) -> Any:
        """Return a new channel of `grpc`."""
        ...

    def connect(self, address: str, timeout_s: float) -> socket.socket:
        """Return a connection for those who speak HTTP/2 by hand. May block, for `timeout_s` at each step.

        Raises what sockets and TLS raise, and `ValueError` or `OverflowError` if the address is none.
        """
        ...

    def roles(self, context: Any) -> Collection[Role]:
        """Say what the other end of a call is."""
        ...

    def why_not(self, context: Any, node: str) -> str | None:
        """Say why the other end of a call may not speak as a node; None if it may."""
        ...


@dataclass(frozen=True)
class Plaintext:
    """No TLS: everybody who can reach the port may do everything."""

    allow_plaintext: bool = False
    """Whether that may be said of other addresses than the machine's own."""

    def bind(self, server: Any, listen: str) -> int:
        self._check(listen, "listens on")
        return int(server.add_insecure_port(listen))

    def channel(self, address: str, options: Options) -> Any:
        self._check(address, "connects to")
        return grpc.aio.insecure_channel(target(address), options)

    def blocking_channel(self, address: str, options: Options) -> Any:
        self._check(address, "connects to")
        return grpc.insecure_channel(target(address), options)

    def connect(self, address: str, timeout_s: float) -> socket.socket:
        self._check(address, "connects to")
        return _connected(address, timeout_s)

    def roles(self, context: Any) -> Collection[Role]:  # noqa: ARG002
        return EVERYTHING

    def why_not(self, context: Any, node: str) -> str | None:  # noqa: ARG002
        return None

    def _check(self, address: str, does: str) -> None:
        if not self.allow_plaintext and not is_loopback(address):
            raise UsageError(
                f"a node without TLS {does} its own machine alone, not {address}: set the certificate, key and "
                f"authority, or use an address such as 127.0.0.1, or set allow_plaintext = true if everybody who "
                f"can reach that network may read and change everything"
            )


@dataclass(frozen=True)
class TlsSettings:
    """PEM files, and what the names in a certificate allow.

    A pattern stands for names as in a shell: `*` is anything, dots too. It is compared with the common name and with
    every alternative name.
    """

    certificate: Path
    key: Path
    authority: Path
    roles: Mapping[str, Collection[Role]]


class Pem(NamedTuple):
    """The contents of the three files."""

    certificate: bytes
    key: bytes
    authority: bytes


class Tls:
    """TLS with a certificate on both ends."""

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._stamp = self._files_stamp()
        self._pem = self._read()

    def bind(self, server: Any, listen: str) -> int:
        stamp, pem = self._current()
        served = [stamp]

        def fetch() -> Any:
            """Called by gRPC at every handshake, on a thread of its own; None is "as before"."""
            stamp, pem = self._current()
            if stamp == served[0]:
                return None
            served[0] = stamp
            return _configuration(pem)

        credentials = grpc.dynamic_ssl_server_credentials(
            _configuration(pem), fetch, require_client_authentication=True
        )
        return int(server.add_secure_port(listen, credentials))

    def channel(self, address: str, options: Options) -> Any:
        return grpc.aio.secure_channel(target(address), self._credentials(), options)

    def blocking_channel(self, address: str, options: Options) -> Any:
        return grpc.secure_channel(target(address), self._credentials(), options)

    def connect(self, address: str, timeout_s: float) -> socket.socket:
        context = self.context()
        context.set_alpn_protocols(["h2"])
        plain = _connected(address, timeout_s)
        try:
            return context.wrap_socket(plain, server_hostname=host_of(address))
        except BaseException:
            plain.close()
            raise

    def roles(self, context: Any) -> Collection[Role]:
        return roles_of(names_of(context.auth_context()), self._settings.roles)

    def why_not(self, context: Any, node: str) -> str | None:
        names = names_of(context.auth_context())
        if any(stands_for(name, host_of(node)) for name in names):
            return None
        return f"a certificate for {', '.join(names)} may not speak as the node {node}"

    def context(self) -> ssl.SSLContext:
        """Return what Python's own TLS needs: for those who do without gRPC's, and to find out why that failed."""
        settings = self._settings
        context = ssl.create_default_context(cafile=settings.authority)
        context.load_cert_chain(settings.certificate, settings.key)
        return context

    def _credentials(self) -> Any:
        _, pem = self._current()
        return grpc.ssl_channel_credentials(pem.authority, pem.key, pem.certificate)

    def _current(self) -> tuple[object, Pem]:
        """Return the contents of the files; the last good ones while somebody is busy replacing them."""
        with self._lock:
            try:
                stamp = self._files_stamp()
                if stamp != self._stamp:
                    self._pem, self._stamp = self._read(), stamp
                    log.info("certificates read again: %s", self._settings.certificate)
            except UsageError as error:
                log.warning("the certificates stay as they were: %s", error)
            return self._stamp, self._pem

    def _files_stamp(self) -> object:
        settings = self._settings
        try:
            stats = [
                os.stat(path) for path in (settings.certificate, settings.key, settings.authority)
            ]
        except OSError as error:
            raise UsageError(f"{error.filename}: {error.strerror}") from None
        return [(each.st_mtime_ns, each.st_size, each.st_ino) for each in stats]

    def _read(self) -> Pem:
        """Read the files, and see that they fit together: gRPC would only say that no handshake works."""
        settings = self._settings
        try:
            self.context()
            return Pem(
                settings.certificate.read_bytes(),
                settings.key.read_bytes(),
                settings.authority.read_bytes(),
            )
        except (OSError, ssl.SSLError) as error:
            raise UsageError(
                f"certificate {settings.certificate}, key {settings.key} and authority {settings.authority} are not "
                f"readable or do not fit together: {error}"
            ) from None


def security_from(
    files: Sequence[Path | None], roles: Mapping[str, Collection[str]], *, allow_plaintext: bool
) -> Security:
    """Return TLS with a certificate, its key and an authority, if there are any."""
    certificate, key, authority = files
    if certificate is None or key is None or authority is None:
        return Plaintext(allow_plaintext)
    given = {pattern: [Role(role) for role in names] for pattern, names in roles.items()}
    return Tls(TlsSettings(certificate, key, authority, given))


def names_of(auth: Mapping[str, Collection[bytes]]) -> list[str]:
    """Return the names of the certificate that the other end has shown."""
    keys = ("x509_common_name", "x509_subject_alternative_name")
    return [name.decode("utf-8", "replace") for key in keys for name in auth.get(key, ())]


def roles_of(names: Collection[str], roles: Mapping[str, Collection[Role]]) -> Collection[Role]:
    """Return the roles that a mapping from patterns gives to any of some names."""
    return frozenset(
        role
        for pattern, given in roles.items()
        if any(fnmatchcase(name, pattern) for name in names)
        for role in given
    )


def stands_for(name: str, host: str) -> bool:
    """Say whether a name in a certificate is a host's, by the rules of TLS: `*.` stands for one label."""
    name, host = name.lower(), host.lower()
    wild, _, domain = name.partition(".")
    return name == host or (wild == "*" and domain != "" and domain == host.partition(".")[2])


def host_of(address: str) -> str:
    """Return the host of `host:port`."""
    return address.rpartition(":")[0].strip("[]")


def is_loopback(address: str) -> bool:
    """Say whether `host:port` is on this machine. A name is not looked up: it may mean another one tomorrow."""
    host = host_of(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def target(address: str) -> str:
    """Return an address as gRPC wants it. Names come from the network, and must not choose how they are resolved."""
    return f"dns:///{address}"


def _configuration(pem: Pem) -> Any:
    return grpc.ssl_server_certificate_configuration(
        [(pem.key, pem.certificate)], root_certificates=pem.authority
    )


def _connected(address: str, timeout_s: float) -> socket.socket:
    """Return a connection on which small messages do not wait for company."""
    connection = socket.create_connection((host_of(address), _port_of(address)), timeout_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _port_of(address: str) -> int:
    return int(address.rpartition(":")[2])
