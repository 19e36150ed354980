"""What an application touches: `connect`, `Broadcast`, `Subscription`.

=================  ===========================================================================
`connecting`       `connect`
`settings`         everything that can be said about a session
`session`          `Broadcast`: everything an application calls
`checking`         what an event may be like, said to whoever publishes it
`publishing`       events on their way out: gathered into batches, one under way at a time
`receipts`         what became of an event, for whoever published it
`subscription`     events on their way in: iterators, callbacks, and no more than a bound waits
`selecting`        leaving out of a batch what has another topic
`source`           a stream that keeps a `NearCache` true
`local`            a proxy inside this process
`background`       the thread with the event loop that all of a session's machines live on
=================  ===========================================================================
"""

from sirius.broadcast.live.connecting import connect
from sirius.broadcast.live.local import LocalProxy
from sirius.broadcast.live.receipts import Receipt, Span
from sirius.broadcast.live.session import Broadcast
from sirius.broadcast.live.source import BroadcastSource
from sirius.broadcast.live.subscription import Received, Subscription

__all__ = [
    "Broadcast",
    "BroadcastSource",
    "LocalProxy",
    "Receipt",
    "Received",
    "Span",
    "Subscription",
    "connect",
]
