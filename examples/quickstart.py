"""The shortest Sirius: a dict of your own, kept by a log.

Run it twice: `python examples/quickstart.py`. The second time, what the first one wrote is there before anything else.
"""

from __future__ import annotations

import json
import sys

from sirius import RequestHandler, Sirius, SiriusConfig, SiriusResult


class Titles(RequestHandler):
    """Films by key. Sirius calls it from one thread, in the order of the log, on every node alike."""

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


def main(folder: str) -> None:
    titles = Titles()
    with Sirius(titles, SiriusConfig(data=folder)) as sirius:
        print(f"{len(titles.by_key)} films were in the log of {folder}")
        ack = sirius.enqueue_put("title/casablanca", json.dumps({"year": 1942}).encode())
        result = ack.result(timeout=30)
        print(f"written to disk and applied, as entry {result.seq} of the log")
        # A read is plain Python: no call, no lock, no network.
        print("title/casablanca:", json.loads(titles.by_key["title/casablanca"]))
        # Many updates at once: ask for all of them, then wait.
        acks = [sirius.enqueue_put(f"title/{n:04}", b'{"year": 2026}') for n in range(1000)]
        print(f"1,000 more, up to entry {max(ack.result(30).seq or 0 for ack in acks)}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "sirius-data")
