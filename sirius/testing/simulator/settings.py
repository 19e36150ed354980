"""The settings of a run, drawn from its seed.

**Swarm.** Each seed switches some kinds of faults off, and draws how hard the others strike, how large the cluster
is and how it is tuned. A run that has everything at once never gets far enough to show what two of them do together.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final

from sirius.catchup.config import CatchupConfig
from sirius.engine import Settings as Machines
from sirius.paxos.config import PaxosConfig
from sirius.testing.simulator.faults import Kind
from sirius.wal import LogConfig
from sirius.wal.record import Limits

NAMES: Final = "abcdefg"
SPARES: Final = ("s", "t")
FOLLOWERS: Final = ("p", "q")
CLUSTER_SIZES: Final = (1, 3, 3, 3, 5, 5, 7)
WRITES_PER_S_MIN: Final = 50
"""A run with fewer acknowledged writes a second proves nothing."""
KINDS: Final = tuple(kind for kind in Kind if kind not in (Kind.SLOW_HANDLER, Kind.BAD_FILES))
"""The kinds that disturb consensus. Slow handlers and bad files must not, and so they come on top of them."""
LOG_CONFIG: Final = LogConfig(
    segment_records_max=400,
    reserve_bytes=0,
    background=False,
    retire_after_s=1.0,
    limits=Limits(1024, 64 * 1024, 1024 * 1024),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """One run. Two runs with equal settings and schedules are equal."""

    seed: int
    voters: tuple[str, ...]
    spares: tuple[str, ...]
    followers: tuple[str, ...]
    duration_s: float
    liveness: bool
    """Whether everything is healed at the end, and the cluster must recover."""
    kinds: tuple[Kind, ...]
    """The kinds of faults that are switched on."""
    faults: int
    paxos: PaxosConfig
    tick_s: float
    delay_s: float
    """How long a message takes, on average."""
    sync_s: float
    clients: int
    writes_per_s: float
    keys: int
    trim_bytes_min: int
    catchup: CatchupConfig
    chained: bool
    """Whether followers follow each other, too."""
    backlog_bytes_max: int = 4096
    log: LogConfig = LOG_CONFIG

    @property
    def machines(self) -> Machines:
        """The settings of each node's machines."""
        return Machines(self.paxos, self.catchup)

    @property
    def clock_bound(self) -> float:
        """By how much clocks may run wrong: leases bear what is configured."""
        return self.paxos.clock_drift_max if self.paxos.lease else 0.5

    @property
    def names(self) -> tuple[str, ...]:
        """All nodes."""
        return (*self.voters, *self.spares, *self.followers)

    def __str__(self) -> str:
        paxos = self.paxos
        return (
            f"seed {self.seed}: voters {' '.join(self.voters)}, spares {' '.join(self.spares) or '-'}, "
            f"followers {' '.join(self.followers) or '-'}, {self.duration_s:.1f} s, "
            f"{'liveness phase' if self.liveness else 'no liveness phase'}, "
            f"election {paxos.election_timeout_s:.2f} s, heartbeat {paxos.heartbeat_s:.2f} s, "
            f"pipeline {paxos.pipeline_accepts_max}, {'leases, ' if paxos.lease else ''}"
            f"tick {self.tick_s * 1000:.0f} ms, network {self.delay_s * 1000:.1f} ms, "
            f"sync {self.sync_s * 1000:.1f} ms, {self.clients} clients, "
            f"{self.writes_per_s:.0f} writes/s, {self.keys} keys"
        )


def stream(seed: int, name: str) -> random.Random:
    """Return randomness of its own for one part of a run, so that parts do not disturb each other."""
    return random.Random(f"{seed}/{name}")


def draw_settings(seed: int) -> Settings:
    """Draw a run from its seed."""
    rng = stream(seed, "settings")
    size = rng.choice(CLUSTER_SIZES)
    duration_s = rng.uniform(4.0, 6.0) if size < 5 else rng.uniform(3.4, 4.4)
    return Settings(
        seed=seed,
        voters=tuple(NAMES[:size]),
        spares=SPARES[: rng.choice((0, 1, 1, 2) if size < 7 else (0, 0, 1))],
        followers=FOLLOWERS[: rng.choice((0, 1, 1, 2) if size < 7 else (0, 1))],
        duration_s=round(duration_s, 1),
        liveness=bool(seed % 2),
        kinds=_draw_kinds(rng),
        faults=rng.randrange(26, 32),
        paxos=_draw_paxos(rng),
        tick_s=rng.choice((0.025, 0.03, 0.035)),
        delay_s=rng.choice((0.0005, 0.001, 0.002, 0.004)),
        sync_s=rng.choice((0.001, 0.002, 0.005)),
        clients=rng.choice((2, 3, 4)),
        writes_per_s=rng.choice((130.0, 150.0, 170.0)),
        keys=rng.choice((3, 8, 20, 60)),
        trim_bytes_min=rng.choice((2_000, 20_000, 8 << 20)),
        catchup=_with_files(_draw_catchup(rng), stream(seed, "files")),
        chained=rng.random() < 0.7,
    )


def _draw_kinds(rng: random.Random) -> tuple[Kind, ...]:
    chance = rng.choice((0.3, 0.5, 0.8))
    drawn = tuple(kind for kind in KINDS if rng.random() < chance)
    return drawn if len(drawn) > 3 else KINDS


def _draw_paxos(rng: random.Random) -> PaxosConfig:
    timeout_s = rng.choice((0.25, 0.3, 0.4))
    config = PaxosConfig(
        heartbeat_s=timeout_s / rng.choice((3, 4, 5)),
        election_timeout_s=timeout_s,
        retry_s=rng.choice((0.1, 0.15, 0.2)),
        request_timeout_s=rng.choice((0.6, 1.0, 2.0)),
        pipeline_accepts_max=rng.choice((1, 2, 8)),
        trim_slots_min=rng.choice((1, 32, 256)),
        level_slots=rng.choice((10, 50, 200)),
        accept_slots_max=4096,
        lease=rng.random() < 0.3,
        clock_drift_max=0.3,
    )
    return _with_bounds(config, rng)


def _draw_catchup(rng: random.Random) -> CatchupConfig:
    return CatchupConfig(
        interval_s=rng.choice((0.3, 0.6)),
        gap_patience_s=rng.choice((0.02, 0.06)),
        request_timeout_s=rng.choice((0.15, 0.3)),
        retry_s=0.05,
        backoff_s_max=0.5,
        shun_s=0.5,
        prefer=rng.choice(("random", "nearest")),
        window_slots_min=rng.choice((16, 128)),
        window_bytes_min=4096,
        segment_slots=0,
        cache_bytes_max=rng.choice((4096, 1 << 20)),
        push_bytes_max=rng.choice((4096, 1 << 20)),
        keepalive_s=0.2,
        stream_timeout_s=0.7,
        follower_timeout_s=rng.choice((1.0, 100.0)),
        path_timeout_s=1.0,
        resync_patience_s=rng.choice((0.1, 0.6)),
    )


def _with_files(config: CatchupConfig, rng: random.Random) -> CatchupConfig:
    """Have nodes that are behind take segments as files, in two runs of three."""
    return replace(
        config,
        segment_slots=rng.choice((0, 40, 120)),
        segments_max=rng.choice((1, 3, 64)),
    )


def _with_bounds(config: PaxosConfig, rng: random.Random) -> PaxosConfig:
    """Draw bounds on memory: sometimes so low that they are met all the time."""
    if rng.random() < 0.5:
        return replace(config, intake_bytes_max=1 << 20, pending_bytes_max=1 << 20)
    return replace(
        config,
        batch_updates_max=rng.choice((1, 16, 64)),
        pipeline_bytes_max=8 * 1024,
        intake_bytes_max=8 * 1024,
        intake_requests_max=32,
        pending_bytes_max=8 * 1024,
        pending_requests_max=16,
        forward_bytes_max=2 * 1024,
        reads_max=8,
        sessions_max=rng.choice((3, 8, 10_000)),
    )
