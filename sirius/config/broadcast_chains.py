"""Settings of a proxy that is a chain of replicas: the tables `[chains]` and `[replica]` of its file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sirius.config.kinds import check, refuse
from sirius.config.settings import unique_names
from sirius.errors import UsageError

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""How a stream may be called, and a chain. No colon: it is no address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaTable:
    """A replica of a proxy that is a chain."""

    proxy: str = ""
    """The proxy of which this is a replica: one of `chains`. Unset: it is a proxy of its own."""
    cluster: Sequence[str] = ()
    """The nodes of the Sirius cluster that decides who the replicas are."""
    may_found: bool = True
    """Whether it begins the chain if the cluster knows of none. With `false` it waits for one that does: a cluster that
    was named by mistake, or has lost its log, makes no second chain."""

    def __post_init__(self) -> None:
        check(self, "replica")
        nodes = unique_names("replica.cluster", self.cluster)
        object.__setattr__(self, "cluster", nodes)
        if self.proxy and not nodes:
            raise UsageError(
                f'replica.proxy = "{self.proxy}", but replica.cluster is missing: '
                "expected the nodes of the Sirius cluster that decides who the replicas are"
            )
        if nodes and not self.proxy:
            raise UsageError("replica.cluster needs replica.proxy: expected one of chains")


def normal_chains(chains: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Return chains with addresses in their one spelling. An address is a replica of one proxy."""
    found: dict[str, tuple[str, ...]] = {}
    for name, replicas in chains.items():
        place = f'chains."{name}"'
        if not NAME.fullmatch(name):
            refuse(place, list(replicas), "a proxy's name: letters, digits, . _ and -")
        if not replicas:
            refuse(place, [], "the addresses of its replicas")
        mine = unique_names(place, replicas)
        for other, theirs in found.items():
            if twice := [each for each in mine if each in theirs]:
                refuse(place, twice[0], f'another address: it is of chains."{other}"')
        found[name] = mine
    return found


def check_replica(
    replica: ReplicaTable,
    name: str,
    chains: Mapping[str, Sequence[str]],
    owners: Mapping[str, str],
) -> None:
    """Refuse a replica that is not in its chain, and streams that belong to no chain."""
    if not replica.proxy:
        if chains:
            raise UsageError("chains is for replicas: expected replica.proxy, one of them")
        return
    if replica.proxy not in chains:
        refuse("replica.proxy", replica.proxy, f"one of chains: {', '.join(chains) or 'none'}")
    if name and name not in chains[replica.proxy]:
        own = ", ".join(chains[replica.proxy])
        refuse("name", name, f'one of chains."{replica.proxy}": {own}')
    for stream, owner in owners.items():
        if owner not in chains:
            refuse(f'streams."{stream}"', owner, f"one of chains: {', '.join(chains)}")
