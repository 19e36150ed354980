"""One replica in a process of its own, for `test_replicas`. Not a test: `python -m … PROXY LISTEN CLUSTER REPLICAS`."""

from __future__ import annotations

import asyncio
import sys

from sirius.broadcast.config import ChainConfig
from sirius.broadcast.net.replicas import ReplicaServer, ReplicaSettings


async def main(proxy: str, listen: str, cluster: str, replicas: str) -> None:
    settings = ReplicaSettings(
        proxy=proxy,
        listen=listen,
        chains={proxy: tuple(replicas.split(","))},
        streams={"s": proxy},
        cluster=tuple(cluster.split(",")),
        chain=ChainConfig(beat_s=0.1, suspect_s=2.0, propose_s=0.2, retry_s=0.2),
    )
    server = ReplicaServer(settings)
    await server.start()
    print("up", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
