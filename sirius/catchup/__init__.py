"""Catch-up: getting what others have and this node misses, as a pure machine.

After the Sirius paper, section 5.1: each node periodically asks a peer for the range from its first missing slot on,
and goes on with the same peer for as long as that has more. Nodes that do not vote follow in the same way, so this is
also how a primary cluster feeds others. On top of the paper: ranges that prove what they cover, a window that grows,
whole segments for who is far behind, a pushed stream at the tip, resync below the tombstone floor, chains of
followers without rings, and one puller a region.

**What must never happen.** The position goes past something that no range has proven. A deleted key comes back, because
the delete was dropped before it got here. Both are the business of `ranges`, whose docstring says which parts of which
logs fit together and why.

**Soft state.** Everything but the log itself can be lost at any time, at either end: questions, streams, subscriptions,
registrations and half a resync. Messages may be lost, repeated, late and out of order.

**Reading order.** `messages`, `effects`, `ranges`; then the pulling end: `rounds` with `window` and `sources`, `asking`
with `segments`, `resync`, `stream`, `upstream` and `regions`, `puller`; the feeding end: `feeder` with `cache`,
`subscribers` and `followers`; `machine`.
"""

from sirius.catchup.config import CatchupConfig
from sirius.catchup.effects import Effects
from sirius.catchup.machine import Catchup
from sirius.catchup.messages import Edition, Message, SegmentOffer, Standing
from sirius.catchup.ranges import Basis, Start
from sirius.catchup.sources import Source

__all__ = [
    "Basis",
    "Catchup",
    "CatchupConfig",
    "Edition",
    "Effects",
    "Message",
    "SegmentOffer",
    "Source",
    "Standing",
    "Start",
]
