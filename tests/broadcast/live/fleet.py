"""A process full of clients, each of which sees to it that it misses nothing and gets nothing twice.

`python -m tests.broadcast.live.fleet PROXY STREAM COUNT FROM` prints `up` when all have subscribed. On a line
`goal N SECONDS` on standard input it prints, once all of them are at N or so much time has passed, what they found, as
JSON; it ends with standard input.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass, field

from sirius.broadcast import Subscription, connect
from sirius.broadcast.config import ClientConfig, RegionConfig

# Hundreds of clients on two cores: they talk less, and are patient with each other.
PATIENT = ClientConfig(
    request_timeout_s=2.0,
    stall_s=2.0,
    region=RegionConfig(gossip_s=2.0, gossip_timeout_s=3.0, suspect_s=10.0, notify_s=1.0),
)


@dataclass
class Witness:
    """One client. Events carry the time at which they were published, by a clock that all processes share."""

    position: int
    count: int = 0
    faults: list[str] = field(default_factory=list)
    latencies_ms: list[float] = field(default_factory=list)

    async def watch(self, subscription: Subscription) -> None:
        async for _, batch in subscription.abatches():
            now = time.monotonic_ns()
            if batch.has_holes or batch.first != self.position + 1:
                self.faults.append(f"{batch.first} to {batch.last} behind {self.position}")
                return
            self.position = batch.last
            for event in batch.events():
                self.count += 1
                self.latencies_ms.append((now - int(event.payload)) / 1e6)


def report(witnesses: list[Witness]) -> str:
    return json.dumps(
        {
            "counts": [each.count for each in witnesses],
            "positions": [each.position for each in witnesses],
            "faults": [fault for each in witnesses for fault in each.faults],
            "latencies_ms": [ms for each in witnesses for ms in each.latencies_ms],
        }
    )


async def main(proxy: str, stream: str, count: int, first: int) -> None:
    loop = asyncio.get_running_loop()
    with await asyncio.to_thread(connect, proxy, client=PATIENT) as broadcast:
        witnesses = [Witness(first - 1) for _ in range(count)]
        tasks = []
        for witness in witnesses:
            subscription = await asyncio.to_thread(broadcast.subscribe, stream, first)
            tasks.append(asyncio.create_task(witness.watch(subscription)))
        print("up", flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            goal, ends = int(line.split()[1]), loop.time() + float(line.split()[2])
            while any(each.position < goal and not each.faults for each in witnesses):
                if loop.time() >= ends:
                    break
                await asyncio.sleep(0.05)
            print(report(witnesses), flush=True)
        for task in tasks:
            task.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
