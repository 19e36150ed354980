"""Publishers on real processes: whatever is killed, and however often they send, each update takes effect once."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from sirius.testing.processes import ProcessCluster
from sirius.transport.client import Client
from sirius.wal import Op, Update
from sirius.wal.batch import Batch

COUNT = 30_000


def updates(count: int = COUNT, keys: int = COUNT) -> Iterator[Update]:
    for number in range(count):
        yield Update(Op.PUT, b"key/%d" % (number % keys), b"%d" % number)


def bodies(cluster: ProcessCluster, last: int) -> list[int]:
    """Return the bodies that the log holds, in order, once the last one is on disk."""
    found: list[int] = cluster.until(lambda: _bodies(cluster, last), "end of the log")
    return found


def _bodies(cluster: ProcessCluster, last: int) -> list[int] | None:
    with Client([cluster.nodes[0].name]) as client:
        records = (
            record
            for block in client.tail()
            for record in Batch.of(block).records()
            if record.op == Op.PUT
        )
        found = [int(record.body) for record in records]
    return found if found and found[-1] == last else None


def test_a_leader_that_is_killed_costs_no_update_and_doubles_none() -> None:
    with ProcessCluster.temporary(3) as cluster:
        cluster.start()
        cluster.wait_until_ready()
        addresses = [node.name for node in cluster.nodes]
        begun, killed = threading.Event(), threading.Event()

        def source() -> Iterator[Update]:
            for number, update in enumerate(updates()):
                if number == COUNT // 3:
                    begun.set()
                if number == COUNT // 2:
                    # Batches are under way: the client takes more only when the first of them are answered.
                    assert killed.wait(30)
                yield update

        with Client(addresses, timeout_s=5) as client:
            thread = threading.Thread(
                target=client.publish, args=(source(),), kwargs={"session": "load"}
            )
            thread.start()
            assert begun.wait(30)
            leader = cluster.leader()
            leader.kill()
            killed.set()
            thread.join(60)
            assert not thread.is_alive()
            leader.start()
            cluster.wait_until_ready()
            again = client.publish(updates(), session="load")
        assert again is not None
        assert bodies(cluster, COUNT - 1) == list(range(COUNT))


def test_a_session_is_remembered_over_compaction_and_restarts_of_all_nodes() -> None:
    """The publisher was killed half-way: another process sends everything again."""
    with ProcessCluster.temporary(3, log={"segment_records_max": 1_000}) as cluster:
        cluster.start()
        cluster.wait_until_ready()
        addresses = [node.name for node in cluster.nodes]
        with Client(addresses) as client:
            # One at a time, or they share a block, and all of it is in the active segment.
            client.publish(updates(5_000, keys=10), in_flight=1, session="load")
        cluster.settle()
        for node in cluster.nodes:
            node.call("compact", timeout_s=30)
        cluster.kill()
        cluster.start()
        cluster.wait_until_ready()
        before = bodies(cluster, 4_999)
        with Client(addresses) as client:
            client.publish(updates(5_000, keys=10), session="load")
            assert bodies(cluster, 4_999) == before, "all of it was there"
            client.publish(updates(6_000, keys=10), session="load")
        found = bodies(cluster, 5_999)
        assert found[-1_000:] == list(range(5_000, 6_000))
        assert len(found) < 5_500, (
            f"{len(found)} are left: the first ones were compacted, so this proves something"
        )


def test_what_is_left_out_when_sending_again_shifts_nothing() -> None:
    """Whoever numbers updates by something that stays with them may have lost some of those that were sent before."""

    def runs(*numbers: range) -> list[tuple[int, list[Update]]]:
        made = [[Update(Op.PUT, b"k%d" % n, b"%d" % n) for n in part] for part in numbers]
        return [(part.start, updates) for part, updates in zip(numbers, made, strict=True)]

    with ProcessCluster.temporary(1, durability="os") as cluster:
        cluster.start()
        cluster.wait_until_ready()
        with Client([cluster.nodes[0].name]) as client:
            list(client.runs(runs(range(1, 40), range(50, 61)), "s"))
            # Of the last run that is sent now, a part was there before.
            list(client.runs(runs(range(10, 20), range(52, 55), range(56, 90)), "s"))
            list(client.runs(runs(range(95, 100)), "s"))
        assert bodies(cluster, 99) == [*range(1, 40), *range(50, 90), *range(95, 100)]
