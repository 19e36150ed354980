"""A proxy inside this process: for a first look, for tests, and for a service that is its own region."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from sirius.broadcast.live.background import Background
from sirius.broadcast.net.serving import ProxyServer, ProxySettings


class LocalProxy:
    """Owns some streams, in memory. `with LocalProxy(["films"]) as proxy: connect(proxy.address)`.

    Any field of `ProxySettings` may be given by name; by default it takes any port of this machine's own address.
    """

    def __init__(self, streams: Sequence[str] | Mapping[str, str], **settings: Any) -> None:
        owners = streams if isinstance(streams, Mapping) else dict.fromkeys(streams, "")
        found = ProxySettings(streams=owners, **settings)
        if not found.name and not found.listen:
            found = replace(found, listen="127.0.0.1:0")
        self._background = Background("sirius-proxy")
        self._server = ProxyServer(found)
        try:
            self.address = self._background.run(self._server.start())
        except BaseException:
            self._background.close()
            raise

    def status(self) -> dict[str, Any]:
        """What it says about itself."""

        async def ask() -> dict[str, Any]:
            return self._server.status()

        return self._background.run(ask())

    def close(self) -> None:
        """Stop. Closing twice is harmless."""
        if not self._background.is_closed:
            self._background.run(self._server.close())
            self._background.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
