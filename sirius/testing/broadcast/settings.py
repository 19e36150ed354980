"""The settings of a run, drawn from its seed: how many regions, clients and streams, and how everything is tuned.

In every other run bounds are so low that they are met all the time.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from sirius.broadcast.chain.routes import Chains
from sirius.broadcast.config import ChainConfig, ClientConfig, ProxyConfig, RegionConfig
from sirius.broadcast.events import Stream
from sirius.broadcast.messages import Peer
from sirius.broadcast.proxy import Layout
from sirius.testing.simulator.settings import stream as randomness

REGIONS: Final = "ABCD"


@dataclass(frozen=True, slots=True)
class Settings:
    """One run. Two runs with equal settings and faults are equal."""

    seed: int
    regions: str
    """A letter each, which is also the name of its proxy."""
    clients: tuple[str, ...]
    """Their names begin with the letter of their region."""
    joins: tuple[tuple[float, str], ...]
    """Clients that come later, and when."""
    layout: Layout
    duration_s: float
    faults: int
    tick_s: float
    delay_s: float
    publishers: int
    batches_per_s: float
    keys: int
    wire: bool
    """Whether batches travel as bytes."""
    proxy: ProxyConfig
    client: ClientConfig
    chains: Chains
    """The replicas of proxies that have some: `A.1`, `A.2` and so on."""
    replicas: tuple[tuple[float, str], ...]
    """When each of them starts for the first time."""
    chain: ChainConfig

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: regions {' '.join(self.regions)}, clients {' '.join(self.clients)}, "
            f"later {' '.join(name for _, name in self.joins) or '-'}, "
            f"streams {' '.join(f'{stream}@{owner}' for stream, owner in self.layout.owners.items())}, "
            f"{self.duration_s:.1f} s, {self.faults} faults, network {self.delay_s * 1000:.0f} ms, "
            f"tick {self.tick_s * 1000:.0f} ms, V {self.proxy.region.view_max}, "
            f"F {self.proxy.region.fanout}, C {self.proxy.switch_c:g}, "
            f"window {self.proxy.window_bytes} bytes, {self.batches_per_s:.0f} batches/s, "
            f"{self.keys} keys{', encoded' if self.wire else ''}, "
            f"replicas {' '.join(f'{name}@{at:g}' for at, name in self.replicas) or '-'}, "
            f"suspected after {self.chain.suspect_s:g} s"
        )


def draw_settings(seed: int) -> Settings:
    """Draw a run from its seed."""
    rng = randomness(seed, "settings")
    regions = REGIONS[: rng.choice((1, 2, 3, 3, 4))]
    clients = tuple(f"{region}{n}" for region in regions for n in range(1, rng.randrange(3, 5)))
    late = tuple(f"{rng.choice(regions)}{n}" for n in (7, 8, 9)[: rng.randrange(4)])
    duration_s = round(rng.uniform(1.6, 2.4), 1)
    owners = {
        Stream(f"s{number}"): Peer(rng.choice(regions)) for number in range(rng.randrange(1, 4))
    }
    is_small = rng.random() < 0.5
    region = _draw_region(rng, is_small)
    chains, chain, starts = _draw_chains(randomness(seed, "chains"), regions, duration_s)
    return Settings(
        seed=seed,
        regions=regions,
        clients=clients,
        joins=tuple((round(rng.uniform(0.3, duration_s), 2), name) for name in late),
        layout=Layout(tuple(map(Peer, regions)), owners),
        duration_s=duration_s,
        faults=rng.randrange(8, 16),
        tick_s=rng.choice((0.04, 0.05)),
        delay_s=rng.choice((0.001, 0.004, 0.01)),
        publishers=rng.randrange(1, 4),
        batches_per_s=rng.choice((20.0, 40.0)),
        keys=rng.choice((2, 5, 20)),
        wire=rng.random() < 0.25,
        proxy=_draw_proxy(rng, region, is_small),
        client=_draw_client(rng, region, is_small),
        chains=chains,
        replicas=starts,
        chain=chain,
    )


def _draw_chains(
    rng: random.Random, regions: str, duration_s: float
) -> tuple[Chains, ChainConfig, tuple[tuple[float, str], ...]]:
    """Draw which proxies are replicated; one in three replicas comes later."""
    counts = {region: rng.choice((2, 3, 3)) for region in regions if rng.random() < 0.6}
    has_chains = rng.random() < 0.4
    chains = {
        Peer(region): tuple(Peer(f"{region}.{n}") for n in range(1, count + 1))
        for region, count in counts.items()
        if has_chains
    }
    starts = tuple(
        (round(rng.uniform(0.2, duration_s), 2) if n and rng.random() < 0.3 else 0.0, str(name))
        for names in chains.values()
        for n, name in enumerate(names)
    )
    config = ChainConfig(
        beat_s=rng.choice((0.05, 0.1)),
        suspect_s=rng.choice((0.3, 0.5)),
        propose_s=rng.choice((0.1, 0.2)),
        retry_s=rng.choice((0.08, 0.15)),
    )
    return chains, config, starts


def _draw_region(rng: random.Random, is_small: bool) -> RegionConfig:
    return RegionConfig(
        view_max=rng.choice((2, 3, 6)),
        fanout=rng.choice((1, 2, 3)),
        shuffle_s=rng.choice((0.03, 0.1)),
        gossip_s=rng.choice((0.1, 0.2)),
        gossip_timeout_s=0.15,
        suspect_s=rng.choice((0.3, 1.0)),
        proxy_share=rng.choice((0.1, 0.3)),
        notify_s=rng.choice((0.1, 0.15)),
        reply_bytes_max=rng.choice((100, 400)) if is_small else 1 << 16,
    )


def _draw_proxy(rng: random.Random, region: RegionConfig, is_small: bool) -> ProxyConfig:
    return ProxyConfig(
        advertise_s=rng.choice((0.06, 0.12)),
        switch_c=rng.choice((0.0, 1.0, 20.0)),
        patience_s=rng.choice((0.3, 0.6)),
        retry_s=rng.choice((0.1, 0.2)),
        gap_s=0.04,
        renew_s=0.15,
        subscriber_timeout_s=rng.choice((0.4, 1.0)),
        window_bytes=rng.choice((200, 900)) if is_small else 1 << 20,
        forward_bytes_max=rng.choice((60, 300)) if is_small else 1 << 16,
        recent_bytes_max=rng.choice((100, 1000)) if is_small else 1 << 16,
        region=region,
    )


def _draw_client(rng: random.Random, region: RegionConfig, is_small: bool) -> ClientConfig:
    return ClientConfig(
        request_timeout_s=rng.choice((0.1, 0.2)),
        request_events_max=rng.choice((5, 20)) if is_small else 1 << 16,
        requests_max=rng.choice((1, 2, 4) if not is_small else (2, 4)),
        stall_s=rng.choice((0.1, 0.3)),
        recent_bytes_max=rng.choice((100, 600)) if is_small else 1 << 16,
        ahead_bytes_max=rng.choice((100, 600)) if is_small else 1 << 16,
        backlog_bytes_max=rng.choice((300, 1500)) if is_small else 1 << 16,
        publish_retry_s=0.2,
        publish_waiting_max=rng.choice((2, 50)),
        region=region,
    )
