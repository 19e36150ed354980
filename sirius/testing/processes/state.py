"""The state that the nodes of a process cluster keep: bytes by key, and a digest of all of it."""

from __future__ import annotations

from hashlib import blake2b

from sirius.handler import RequestHandler, SiriusResult


class Store(RequestHandler):
    """A dict."""

    def __init__(self) -> None:
        self.by_key: dict[str, bytes] = {}

    def handle_put(self, key: str, body: bytes) -> SiriusResult:
        self.by_key[key] = body
        return SiriusResult.none()

    def handle_delete(self, key: str) -> SiriusResult:
        self.by_key.pop(key, None)
        return SiriusResult.none()

    def handle_get(self, key: str) -> SiriusResult:
        body = self.by_key.get(key)
        return SiriusResult.none() if body is None else SiriusResult.some(body)

    def digest(self) -> str:
        """Return a number that two equal states share."""
        digest = blake2b(digest_size=16)
        for key, body in sorted(self.by_key.items()):
            digest.update(f"{len(key)} {len(body)} {key} ".encode() + body)
        return digest.hexdigest()
