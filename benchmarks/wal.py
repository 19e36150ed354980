"""The log: replay, append, look-up, compaction, and waltool's scans. About two minutes."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.data import DELETES, batched, make_log, mixed, updates
from benchmarks.figures import Figure, in_turns, say, seconds
from benchmarks.peers import Offsets, compact_rows, raw_write, write_rows
from sirius.wal import (
    CompactionPolicy,
    CompactionResult,
    Durability,
    Log,
    LogConfig,
    LogReader,
    encode,
)

RECORDS = 1_000_000
BLOCK = 1_000
COMPACTED = 2_000_000
LOOKED_UP = 10_000_000


class Handler:
    """A handler that does nothing, as R's does."""

    def put(self, key: str | bytes, body: bytes) -> None: ...

    def batch(self, keys: list[str], bodies: list[bytes]) -> None: ...


def figures() -> Iterator[Figure]:
    """Measure everything; temporary logs go to the system's folder for such files."""
    with tempfile.TemporaryDirectory(prefix="sirius-bench-") as folder:
        root = Path(folder)
        say(f"making a log of {RECORDS:,} records")
        log = str(root / "log")
        make_log(log, updates(RECORDS, RECORDS), block=BLOCK)
        limit = Offsets(log)
        yield from replay(log, limit)
        yield from tool(log, limit)
        del limit
        yield from replay_mixed(root)
        yield from lone_writes(root)
        yield from append(root)
        shutil.rmtree(log)
        yield from compaction(root)
        yield from memory(root)
        yield from lookup(root)


# ---------------------------------------------------------------------- reading


def replay_plain(path: str, handler: Handler) -> None:
    """Open a log and call a handler for each record, every checksum verified."""
    put = handler.put
    with LogReader.open(path) as reader, reader.snapshot() as snapshot:
        for batch in snapshot.batches():
            fresh = batch.updates()
            for key, body in zip(fresh.keys(), fresh.bodies(), strict=True):
                put(key, body)


def replay_batch(path: str, handler: Handler) -> None:
    """Open a log and hand over keys and bodies a batch at a time."""
    with LogReader.open(path) as reader, reader.snapshot() as snapshot:
        for batch in snapshot.batches():
            fresh = batch.updates()
            handler.batch(fresh.keys(), fresh.bodies())


def replay(path: str, limit: Offsets) -> Iterator[Figure]:
    say("replaying")
    handler = Handler()
    times = in_turns(
        {
            "R": lambda: limit.run(handler.put),
            "plain": lambda: replay_plain(path, handler),
            "batch": lambda: replay_batch(path, handler),
        }
    )
    yield Figure("wal.R", RECORDS / times["R"] / 1e6, "M rec/s", note="the limit, in this run")
    yield Figure("wal.replay_plain", times["R"] / times["plain"], "R", 0.5)
    yield Figure("wal.replay_batch", times["R"] / times["batch"], "R", 1.0)


def replay_mixed(root: Path) -> Iterator[Figure]:
    """The same with keys and bodies of many lengths, which cannot be cut in one go."""
    path, count = str(root / "mixed"), RECORDS // 4
    make_log(path, mixed(count, RECORDS), block=BLOCK)
    limit, handler = Offsets(path), Handler()
    times = in_turns(
        {"R": lambda: limit.run(handler.put), "batch": lambda: replay_batch(path, handler)}
    )
    shutil.rmtree(path)
    yield Figure("wal.replay_mixed", times["R"] / times["batch"], "R", note="many lengths, batches")


def lone_writes(root: Path) -> Iterator[Figure]:
    """A log in which every record came alone: the worst there is."""
    say("replaying a log of lone writes")
    path, count = str(root / "lone"), RECORDS // 10
    make_log(path, updates(count, count), block=1)
    limit, handler = Offsets(path), Handler()
    times = in_turns(
        {"R": lambda: limit.run(handler.put), "plain": lambda: replay_plain(path, handler)}
    )
    yield Figure("wal.replay_lone", times["R"] / times["plain"], "R", note="blocks of one record")


def lookup(root: Path) -> Iterator[Figure]:
    say(f"making a log of {LOOKED_UP:,} records for look-ups")
    path = str(root / "large")
    make_log(path, updates(LOOKED_UP, 1_000_000, body_bytes=16), block=4096)
    rng = random.Random(1)
    with LogReader.open(path) as reader, reader.snapshot() as snapshot:
        wanted = [rng.randrange(1, LOOKED_UP) for _ in range(20_000)]
        for seq in wanted[:2000]:
            snapshot.record(seq)
        times = []
        for seq in wanted:
            started = time.perf_counter()
            record = snapshot.record(seq)
            times.append(time.perf_counter() - started)
            if record is None or record.seq != seq:
                raise RuntimeError(f"look-up of {seq} gave {record}")
    times.sort()
    yield Figure("wal.lookup_p50", median(times) * 1e6, "µs", 100, True, f"{LOOKED_UP:,} records")
    yield Figure("wal.lookup_p99", times[int(len(times) * 0.99)] * 1e6, "µs")


# ---------------------------------------------------------------------- writing


def append(root: Path) -> Iterator[Figure]:
    say("appending")
    source = updates(RECORDS // 2, RECORDS)
    blocks = [
        encode(1 + number * BLOCK, batch, 1) for number, batch in enumerate(batched(source, BLOCK))
    ]
    raw = [block.raw for block in blocks]

    def ours() -> None:
        shutil.rmtree(root / "append", ignore_errors=True)
        config = LogConfig(
            durability=Durability.OS,
            reserve_bytes=0,
            segment_bytes_max=1 << 30,
            segment_records_max=1 << 30,
        )
        log = Log.open(root / "append", config)
        started = time.perf_counter()
        for block in blocks:
            log.append(block)
        took.append(time.perf_counter() - started)
        log.close()

    took: list[float] = []
    theirs: list[float] = []
    for _ in range(6):
        ours()
        (root / "raw").unlink(missing_ok=True)
        theirs.append(seconds(lambda: raw_write(root / "raw", raw)))
    (root / "raw").unlink()
    rate = len(blocks) * BLOCK / median(took) / 1e6
    yield Figure("wal.append", median(theirs[1:]) / median(took[1:]), "raw write", 0.7)
    yield Figure("wal.append_rate", rate, "M rec/s", note="encoded blocks of 1,000, mode os")
    shutil.rmtree(root / "append")


# ---------------------------------------------------------------------- compaction


def compaction(root: Path) -> Iterator[Figure]:
    say(f"compacting {COMPACTED:,} records")
    source, rows = str(root / "source"), root / "rows"
    make_log(
        source,
        updates(COMPACTED, COMPACTED // 4, deletes=DELETES),
        block=BLOCK,
        segment_records_max=200_000,
    )
    write_rows(source, rows)
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(4):
        result, took = compact_once(source, root / "copy")
        ours.append(took)
        theirs.append(seconds(lambda: compact_rows(rows, root / "compacted")))
    share = result.records_dropped / COMPACTED
    note = f"{share:.0%} superseded, {result.segments_before} segments to {result.segments_after}"
    ratio = median(theirs[1:]) / median(ours[1:])
    yield Figure("wal.compact", ratio, "x Python", 6.0, note=note)
    amplification = result.bytes_written / result.bytes_freed
    yield Figure(
        "wal.compact_amplification", amplification, "B/B", note="written for each byte freed"
    )
    for path in (Path(source), rows, root / "compacted", root / "copy"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def compact_once(source: str, target: Path) -> tuple[CompactionResult, float]:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    with Log.open(target, LogConfig(durability=Durability.OS, segment_records_max=200_000)) as log:
        started = time.perf_counter()
        result = log.compact()
        return result, time.perf_counter() - started


def memory(root: Path) -> Iterator[Figure]:
    """Peak memory of a pass, each in a process of its own: by keys, and by records."""
    say("measuring the memory of compaction")
    settings = {"segment_records_max": 50_000}
    few, many, longer = root / "few", root / "many", root / "longer"
    make_log(str(few), updates(1_000_000, 50_000, body_bytes=40), block=BLOCK, **settings)
    make_log(str(many), updates(1_000_000, 2_000_000, body_bytes=40), block=BLOCK, **settings)
    make_log(str(longer), updates(3_000_000, 50_000, body_bytes=40), block=BLOCK, **settings)
    peaks = {path.name: median(peak(path, root) for _ in range(3)) for path in (few, many, longer)}
    keys = distinct_keys(many) - distinct_keys(few)
    each = (peaks["many"] - peaks["few"]) / keys
    yield Figure("wal.compact_key", each, "B/key", 40, True, f"from {keys:,} more distinct keys")
    growth = (peaks["longer"] - peaks["few"]) / 1e6
    yield Figure("wal.compact_growth", growth, "MB", 8, True, "for three times the records")
    yield Figure("wal.compact_peak", peaks["longer"] / 1e6, "MB", note="3 M records, 50,000 keys")


def distinct_keys(path: Path) -> int:
    with LogReader.open(str(path)) as reader, reader.snapshot() as snapshot:
        return len({key for batch in snapshot.batches() for key in batch.key_blobs()})


def peak(path: Path, root: Path) -> float:
    """Return by how much a pass raises the peak of a fresh process."""
    copy = root / "memory"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(path, copy)
    command = [sys.executable, "-m", "benchmarks.wal", str(copy)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    shutil.rmtree(copy)
    return float(json.loads(printed)["bytes"])


def _compact_and_tell(path: str) -> None:
    config = LogConfig(durability=Durability.OS, reserve_bytes=0, segment_records_max=50_000)
    with Log.open(path, config) as log:
        before = peak_bytes()
        log.compact(CompactionPolicy(dead_fraction_min=0))
        print(json.dumps({"bytes": peak_bytes() - before}))


def peak_bytes() -> int:
    """Return the highest memory use of this process. (`getrusage` would remember that of the parent.)"""
    status = Path("/proc/self/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line)


# ---------------------------------------------------------------------- waltool


def tool(path: str, limit: Offsets) -> Iterator[Figure]:
    """waltool as a process of its own. What it takes to start, measured with a log of ten records, is taken off."""
    say("running waltool")
    handler = Handler()
    waltool = [sys.executable, "-m", "waltool"]
    tiny = f"{path}-tiny"
    make_log(tiny, updates(10, 10), block=10)

    def run(*arguments: str) -> None:
        subprocess.run([*waltool, *arguments], check=False, stdout=subprocess.DEVNULL)

    times = in_turns(
        {
            "R": lambda: limit.run(handler.put),
            "start": lambda: run("tail", tiny),
            "tail": lambda: run("tail", path),
            "grep": lambda: run("grep", "-c", "0000001$", path),
            "stats": lambda: run("stats", path),
            "verify": lambda: run("verify", path),
        },
        # Processes that fill fresh memory differ by a factor of two from run to run.
        repeats=9,
    )
    start = times["start"]
    yield Figure("wal.tool_start", start, "s", note="waltool tail of ten records")
    yield Figure("wal.tail", times["tail"] / start, "x start", 1.5, True, "of a million records")
    for name, bar in (("grep", 0.5), ("stats", 0.5), ("verify", 1.0)):
        yield Figure(f"wal.{name}", times["R"] / (times[name] - start), "R", bar)


if __name__ == "__main__":
    _compact_and_tell(sys.argv[1])
