"""Talking to nodes: over gRPC by "host:port", or over HTTP to the reference application by "http://…"."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import click

from sirius.config import SiriusConfig, TlsSettings, address
from sirius.errors import SiriusError, Unreachable, UsageError

if TYPE_CHECKING:
    from sirius.transport.client import Client
    from sirius.transport.security import Security

Function = Callable[..., int | None]
Json = dict[str, Any]

_AT_ONCE = 16


class Loaded(Protocol):
    """What a file of settings has, of whatever it is."""

    @property
    def tls(self) -> TlsSettings: ...


class Connection(NamedTuple):
    """How to reach nodes."""

    config: str | None
    certificate: str | None
    key: str | None
    authority: str | None
    allow_plaintext: bool
    timeout_s: float

    def client(self, addresses: Sequence[str]) -> Client:
        """Return a client that talks to one of these nodes."""
        from sirius.transport.client import Client

        names = [_normal(each) for each in addresses]
        return Client(names, self.security(), timeout_s=self.timeout_s)

    def security(self) -> Security:
        """Return how to show who one is."""
        from sirius.transport.security import Plaintext, Tls, TlsSettings

        if (files := self.files()) is None:
            return Plaintext(self.allow_plaintext)
        # Whoever only asks is asked by nobody.
        return Tls(TlsSettings(*files, roles={}))

    def loaded(self) -> Loaded:
        """Return what the file says."""
        return SiriusConfig.load(self.config or "")

    def files(self) -> tuple[Path, Path, Path] | None:
        """The files of a certificate; those that are given go before those of the configuration."""
        given = [self.certificate, self.key, self.authority]
        if self.config is not None and not any(given):
            tls = self.loaded().tls
            given = [
                None if file is None else str(file)
                for file in (tls.certificate, tls.key, tls.authority)
            ]
        if not any(given):
            return None
        certificate, key, authority = given
        if certificate is None or key is None or authority is None:
            raise UsageError("--certificate, --key and --authority belong together")
        return Path(certificate), Path(key), Path(authority)

    def named(self, addresses: Sequence[str]) -> Sequence[str]:
        """Return the addresses to ask: those that were given, or those of the configuration."""
        if addresses:
            return addresses
        if self.config is None:
            raise UsageError("expected ADDRESS, or --config FILE with the names of the nodes")
        config = SiriusConfig.load(self.config)
        if not (names := tuple(config.members or ()) or (config.name,))[0]:
            raise UsageError(f"{self.config} names no node that has an address")
        return names


def connection_options(function: Function, kind: type[Connection] = Connection) -> Function:
    """Give a command the options of a connection; it gets them as `connection`."""

    def with_connection(*arguments: Any, **parameters: Any) -> int | None:
        names = Connection._fields
        connection = kind(**{name: parameters.pop(name) for name in names})
        return function(*arguments, connection=connection, **parameters)

    options = (
        click.option("--config", metavar="FILE", help="A node's settings: names and certificates."),
        click.option("--certificate", metavar="FILE", help="The certificate to show (PEM)."),
        click.option("--key", metavar="FILE", help="Its private key."),
        click.option("--authority", metavar="FILE", help="Who signs the nodes' certificates."),
        click.option("--allow-plaintext", is_flag=True, help="Without TLS beyond this machine."),
        click.option(
            "--timeout",
            "timeout_s",
            type=click.FloatRange(0.01, 3600),
            default=5.0,
            metavar="SECONDS",
            help="How long to wait for an answer; default: 5.",
        ),
    )
    with_connection.__doc__ = function.__doc__
    with_connection.__click_params__ = list(getattr(function, "__click_params__", []))  # type: ignore[attr-defined]
    wrapped: Function = with_connection
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped


class Asked(NamedTuple):
    """What a node says of itself, or why it says nothing."""

    address: str
    status: Json | None
    error: str | None


def statuses(addresses: Sequence[str], connection: Connection) -> list[Asked]:
    """Ask nodes, all at once."""

    def ask(address: str) -> Asked:
        try:
            return Asked(address, status_of(address, connection), None)
        except UsageError:
            raise
        except SiriusError as error:
            return Asked(address, None, str(error))

    with ThreadPoolExecutor(min(_AT_ONCE, len(addresses)), "sirius-ask") as pool:
        return list(pool.map(ask, addresses))


def status_of(address: str, connection: Connection) -> Json:
    """Ask one node. Raises `Unreachable`, or what is wrong with the certificates."""
    if address.startswith(("http://", "https://")):
        return http_json(f"{address.rstrip('/')}/status", connection.timeout_s)
    with connection.client([address]) as client:
        return client.status()


def http_json(url: str, timeout_s: float) -> Json:
    """Return what the reference application answers."""
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as response:
            found = json.load(response)
    except urllib.error.HTTPError as error:
        error.close()
        raise Unreachable(f"{url}: {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise Unreachable(f"{url}: {error.reason}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unreachable(f"{url}: {error}") from None
    if not isinstance(found, dict):
        raise Unreachable(f"{url} is not a Sirius node")
    return found


def _normal(text: str) -> str:
    try:
        return address.normal(text)
    except ValueError as error:
        raise UsageError(f"{text}: expected {error}") from None
