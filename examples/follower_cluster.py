"""Three members and two followers, all in this process: who has what, and when.

A follower has all the data and no vote. It is a node whose name is not in the list of members; it takes updates too,
and sends them to the leader. On real machines each of these is a process of its own, with a file like
docs/example-sirius.toml.

Run it: `python examples/follower_cluster.py`.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import tempfile
from pathlib import Path

from sirius import RequestHandler, Sirius, SiriusConfig, SiriusResult
from sirius.testing.processes import free_ports


class Films(RequestHandler):
    """Bodies by key."""

    def __init__(self) -> None:
        self.by_key: dict[str, bytes] = {}

    def handle_put(self, key: str, body: bytes) -> SiriusResult:
        self.by_key[key] = body
        return SiriusResult.none()

    def handle_delete(self, key: str) -> SiriusResult:
        self.by_key.pop(key, None)
        return SiriusResult.none()


def main(folder: Path) -> None:
    # Nodes that start one after the other do not find each other at once, and say so.
    logging.getLogger("sirius.transport").setLevel(logging.ERROR)
    names = [f"127.0.0.1:{port}" for port in free_ports(5)]
    members, follower = names[:3], names[3]
    films = {name: Films() for name in names}
    with contextlib.ExitStack() as stack:
        nodes: dict[str, Sirius] = {}
        for number, name in enumerate(names):
            config = SiriusConfig(name=name, members=members, data=folder / f"node-{number}")
            nodes[name] = Sirius(films[name], config)
            stack.callback(nodes[name].close)
        for node in nodes.values():
            node.wait_until_ready(timeout=30)

        written = nodes[members[0]].enqueue_put("film/vertigo", b"1958").result(timeout=30)
        print(f"written on a member, as entry {written.seq}")
        # Read your own write on any node: wait for its number there.
        print("a follower has it:", nodes[follower].wait_for(written.seq or 0, timeout=30))
        print("a plain read there:", films[follower].by_key["film/vertigo"].decode())

        forwarded = nodes[follower].enqueue_put("film/casablanca", b"1942").result(timeout=30)
        print(f"written on a follower, as entry {forwarded.seq}: it went to the leader")
        for name, node in nodes.items():
            node.wait_for(forwarded.seq or 0, timeout=30)
            status = node.status()
            print(f"  {status.role:9} has {len(films[name].by_key)} films, {status.lag} behind")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory(prefix="sirius-followers-") as scratch:
            main(Path(scratch))
