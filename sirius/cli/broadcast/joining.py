"""How a command reaches the proxy of a region."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from sirius.cli.nodes import Connection, Function, Loaded, connection_options
from sirius.config import address
from sirius.errors import UsageError

if TYPE_CHECKING:
    from sirius.broadcast import Broadcast
    from sirius.config.broadcast import BroadcastConfig


class Joining(Connection):
    """The same as to a node; the file is that of a proxy."""

    __slots__ = ()

    def loaded(self) -> Loaded:
        return self.settings()

    def settings(self) -> BroadcastConfig:
        """Return the settings of the file that is given."""
        from sirius.config.broadcast import BroadcastConfig

        if self.config is None:
            raise UsageError("expected --config FILE")
        return BroadcastConfig.load(self.config)

    def addresses(self, given: tuple[str, ...]) -> tuple[str, ...]:
        """Return the proxies to ask: those that were given, or all of the file."""
        if given:
            return tuple(map(normal, given))
        if self.config is None:
            raise UsageError("expected ADDRESS, or --config FILE with the names of the proxies")
        return self.settings().addresses()

    def connect(self, proxy: str | None) -> Broadcast:
        """Begin a session."""
        from sirius.broadcast import connect

        if proxy is None and self.config is None:
            raise UsageError("expected --proxy HOST:PORT, or --config FILE of a proxy")
        addresses = [normal(proxy)] if proxy is not None else _own(self.settings())
        certificate, key, authority = self.files() or (None, None, None)
        return connect(
            addresses,
            certificate=certificate,
            key=key,
            authority=authority,
            allow_plaintext=self.allow_plaintext,
            timeout_s=self.timeout_s,
        )


def normal(text: str) -> str:
    """Return an address that was given. Raises `UsageError`: gRPC would say something else, or cut a port short."""
    try:
        return address.normal(text)
    except ValueError as error:
        raise UsageError(f"{text}: expected {error}") from None


def _own(settings: BroadcastConfig) -> list[str]:
    """Return where the proxy of a file is: at the address there, or at those of the other replicas."""
    return list(dict.fromkeys([settings.name, *settings.chains.get(settings.proxy_name, ())]))


def joining_options(function: Function) -> Function:
    """Give a command `--proxy` and the options of a connection; it gets them as `proxy` and `joining`."""

    def with_joining(*arguments: Any, connection: Joining, **parameters: Any) -> int | None:
        return function(*arguments, joining=connection, **parameters)

    with_joining.__doc__ = function.__doc__
    with_joining.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    wrapped = connection_options(with_joining, Joining)
    return click.option("--proxy", metavar="HOST:PORT", help="The proxy of the region.")(wrapped)
