"""Nodes that start fast, and a handler that is a dict."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from sirius import RequestHandler, SiriusConfig, SiriusResult
from sirius.config.settings import HandlerSettings, LogSettings
from sirius.paxos import PaxosConfig
from tests.driver.applying import Gate

FAST: Final = PaxosConfig(heartbeat_s=0.01, election_timeout_s=0.05, retry_s=0.02)
SMALL: Final = LogSettings(reserve_bytes=0)


def config(folder: Path, **settings: Any) -> SiriusConfig:
    """Return the configuration of a lone node that is ready within moments."""
    settings.setdefault("handler", HandlerSettings(retries=0, retry_s=0))
    settings.setdefault("log", SMALL)
    settings.setdefault("durability", "os")
    return SiriusConfig(data=folder / "data", paxos=FAST, **settings)


class Dict(RequestHandler):
    """A dict. Updates wait at its gate if that is closed, and raise at the keys that it does not like."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.gate = Gate()
        self.bad: set[str] = set()

    def handle_put(self, key: str, body: bytes) -> SiriusResult:
        self._check(key)
        had = key in self.values
        self.values[key] = body
        return SiriusResult.some(had)

    def handle_delete(self, key: str) -> SiriusResult:
        self._check(key)
        return SiriusResult.some(self.values.pop(key, None) is not None)

    def handle_get(self, key: str) -> SiriusResult:
        return SiriusResult.some(self.values[key]) if key in self.values else SiriusResult.none()

    def _check(self, key: str) -> None:
        self.gate.pass_through()
        if key in self.bad:
            raise ValueError(f"I do not like {key}")
