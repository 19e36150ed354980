"""Where a node's entries come from: the path down to it.

A follower may follow a follower. Every answer names the nodes through which its entries came, from a primary down to
the one that answers. Who finds itself there would follow itself, and asks somebody else; so it does when the chain
would get too long. Rings that form at one stroke, when nobody knows the others' new paths yet, come apart as the
paths grow: within as many answers as the ring has nodes, one of them meets itself. A ring does no harm but that
nothing new comes.

Who has less than the one that asks is not above it. A leader that takes itself out may be the only one that knows so,
and follow a voter that is behind: that one must be able to ask back.
"""

from __future__ import annotations

from sirius.catchup.context import Context
from sirius.catchup.messages import Path


class Upstream:
    """The path of this node."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._path: Path = ()
        self._at = context.now

    @property
    def path(self) -> Path:
        """From the primary down to this node. A primary follows nobody, nor does who has heard nothing for long."""
        context = self._context
        stale = context.now - self._at >= context.config.path_timeout_s
        above = () if context.is_voter or stale else self._path
        return (*above, context.me.node)

    def accepts(self, path: Path) -> bool:
        return self._context.me.node not in path and len(path) < self._context.config.hops_max

    def follow(self, path: Path) -> None:
        self._path = path
        self._at = self._context.now
