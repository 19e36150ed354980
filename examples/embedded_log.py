"""The log on its own, in one minute: write, die, come back, compact, compare.

Run it as it is, or with a path to keep the log there: `python examples/embedded_log.py ./films`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from sirius.wal import CompactionPolicy, Log, LogConfig, Op, Snapshot, Update, state_digest

FILMS = 5_000
UPDATES = 60_000
BATCH = 200
CONFIG = LogConfig(segment_bytes_max=2 * 1024 * 1024, retire_after_s=0)


def updates(seed: int, count: int) -> Iterator[Update]:
    """Make up changes to a film guide: most films change often, some disappear."""
    rng = random.Random(seed)
    for _ in range(count):
        key = f"film/{int(FILMS * rng.random() ** 2):05d}"
        if rng.random() < 0.05:
            yield Update(Op.DELETE, key.encode())
        else:
            film = {"title": f"Film no. {key[5:]}", "year": rng.randrange(1920, 2027)}
            film["rating"] = round(rng.uniform(1, 10), 1)
            yield Update(Op.PUT, key.encode(), json.dumps(film).encode())


def films_of(log: Log) -> dict[str, bytes]:
    """Build the application's own data structure from the log: this is all that a restart does."""
    films: dict[str, bytes] = {}
    for record in log.records():
        if record.op == Op.PUT:
            films[record.key] = record.body
        elif record.op == Op.DELETE:
            films.pop(record.key, None)
    return films


def write_until_killed(path: str) -> None:
    """Write in a process of its own; say after each batch what is safely on disk."""
    with Log.open(path, CONFIG) as log:
        batch: list[Update] = []
        for update in updates(seed=2, count=10 * UPDATES):
            batch.append(update)
            if len(batch) == BATCH:
                log.write(batch)
                print(log.flush(), flush=True)
                batch = []


def kill_a_writer(path: str) -> int:
    """Start a writer, kill -9 it in the middle, and return what it had acknowledged."""
    child = subprocess.Popen([sys.executable, __file__, "--write", path], stdout=subprocess.PIPE)
    acknowledged = 0
    assert child.stdout is not None
    for line in child.stdout:
        acknowledged = int(line)
        if acknowledged >= 1.5 * UPDATES:
            os.kill(child.pid, signal.SIGKILL)
            break
    acknowledged = max([acknowledged, *map(int, child.stdout.read().split())])
    child.wait()
    child.stdout.close()
    return acknowledged


def digest_of(log: Log) -> str:
    with log.snapshot() as snapshot:
        return state_digest(snapshot).hex


def size_of(snapshot: Snapshot) -> str:
    records = sum(info.records for info in snapshot.segments)
    size = sum(info.bytes for info in snapshot.segments)
    return f"{len(snapshot.segments)} segments, {records:,} records, {size / 1e6:.1f} MB sealed"


def say(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def demo(path: str) -> None:
    say(
        f"1. Writing {UPDATES:,} updates of a film guide to {path}, each batch on disk when it returns"
    )
    started = time.perf_counter()
    with Log.open(path, CONFIG) as log:
        everything = list(updates(seed=1, count=UPDATES))
        for at in range(0, UPDATES, BATCH):
            log.write(everything[at : at + BATCH])
            log.flush()
    print(
        f"   {UPDATES / (time.perf_counter() - started):,.0f} updates a second, synced every {BATCH}"
    )

    say("2. Another process goes on writing, and is killed with kill -9")
    acknowledged = kill_a_writer(path)
    print(f"   the last batch that it said was safe ended at sequence number {acknowledged:,}")

    say("3. Opening the log again")
    started = time.perf_counter()
    with Log.open(path, CONFIG) as log:
        films = films_of(log)
        print(
            f"   {len(films):,} films in a plain dict after {time.perf_counter() - started:.2f} s"
        )
        print(f"   the log ends at {log.durable_seq:,}: nothing that was safe is missing")
        assert log.durable_seq >= acknowledged
        key = next(iter(films))
        print(f"   films[{key!r}] = {films[key].decode()}")

        say("4. Compacting while the log is open: only the newest update of each key stays")
        with log.snapshot() as snapshot:
            print(f"   before: {size_of(snapshot)}")
            before = digest_of(log)
        log.compact(CompactionPolicy(dead_fraction_min=0.0))
        with log.snapshot() as snapshot:
            print(f"   after:  {size_of(snapshot)}")
        print(f"   digest of the state before {before}")
        print(f"                    and after {digest_of(log)}")
        assert films_of(log) == films

    for arguments in (["verify"], ["tail", "-n", "3"], ["grep", "-c", "film/0000."]):
        say(f"   $ waltool {' '.join(arguments)} {path}")
        subprocess.run([sys.executable, "-m", "waltool", *arguments, path], check=True)


def main() -> None:
    arguments = sys.argv[1:]
    if arguments[:1] == ["--write"]:
        write_until_killed(arguments[1])
    elif arguments:
        demo(arguments[0])
    else:
        with tempfile.TemporaryDirectory(prefix="sirius-demo-") as folder:
            demo(f"{folder}/films")
            print(
                "   (this log was a temporary one; `python examples/embedded_log.py films` keeps it)"
            )


if __name__ == "__main__":
    main()
