"""What proxies and clients say to each other.

Between proxies (Sprinkler, Figures 1 and 2): `Advertise`, `Subscribe`, `Unsubscribe`, `Forward`. In a region
(Figure 3): `Gossip` for membership, `Notify`, `Request`, `Events`. To a stream's owner: `Publish`, with `Published`
or `Refused` as the answer. Inside a proxy that is a chain of replicas (section 3.3): `ChainPull`, `ChainPush`,
`ChainBeat`; and to everybody else `ChainIs`. All may be lost, repeated, late and out of order.
"""

from __future__ import annotations

from typing import NamedTuple, NewType

from sirius.broadcast.events import EventBatch, Stream
from sirius.types import Seq

Peer = NewType("Peer", str)
"""The name of a proxy or of a client."""

Counts = tuple[tuple[Stream, Seq], ...]
"""How far somebody is in each stream."""

Epoch = tuple[int, int]
"""A subscriber's life, and a number in it. A higher one is newer."""


class Advertise(NamedTuple):
    """How far a proxy is. Goes to all other proxies, again and again."""

    counts: Counts


class Subscribe(NamedTuple):
    """Send me what comes behind `after`. Repeated with the same epoch, it confirms and keeps alive; with a higher
    one, it begins anew."""

    stream: Stream
    after: Seq
    epoch: Epoch


class Unsubscribe(NamedTuple):
    """Send me no more of it."""

    stream: Stream
    epoch: Epoch


class Forward(NamedTuple):
    """Events for a subscriber."""

    stream: Stream
    batch: EventBatch


class Gossip(NamedTuple):
    """The sender's view of its region, and who did not answer him lately. Who is asked sends his own back."""

    view: tuple[Peer, ...]
    wants_answer: bool
    gone: tuple[Peer, ...] = ()


class Notify(NamedTuple):
    """How far the sender is: ask me for what you miss."""

    counts: Counts


class Request(NamedTuple):
    """Give me what you have of this range. The number comes back in the answer."""

    stream: Stream
    first: Seq
    last: Seq
    number: int


class Events(NamedTuple):
    """What the sender has of a range, from its beginning on without a gap; maybe nothing; and how far he is."""

    stream: Stream
    number: int
    position: Seq
    batches: tuple[EventBatch, ...]


class Publish(NamedTuple):
    """Put this batch into a stream. A publisher sends one at a time, with rising serials, until it is answered."""

    stream: Stream
    publisher: int
    serial: int
    batch: EventBatch


class Published(NamedTuple):
    """The batch stands from `first` to `last`."""

    stream: Stream
    publisher: int
    serial: int
    first: Seq
    last: Seq


class Refused(NamedTuple):
    """The batch is not in the stream. `again`: it may be later on."""

    stream: Stream
    publisher: int
    serial: int
    reason: str
    again: bool


class Mark(NamedTuple):
    """The last batch of a publisher, and where it stands."""

    publisher: int
    serial: int
    first: Seq
    last: Seq


class ChainPush(NamedTuple):
    """Events for the next replica of a chain. Everything up to `counted` counts."""

    number: int
    """Of the chain's configuration, as in the other two."""
    stream: Stream
    counted: Seq
    marks: tuple[Mark, ...]
    """Publishers whose last batch ends here, if the batch does not say so itself."""
    batch: EventBatch


class ChainPull(NamedTuple):
    """To the replica before: I have everything up to `ends`, and everything up to `counts` counts. Send me more."""

    number: int
    ends: Counts
    counts: Counts


class ChainBeat(NamedTuple):
    """To a neighbour: I live, and these are some of the clients that the tail knows."""

    number: int
    clients: tuple[Peer, ...]


class ChainIs(NamedTuple):
    """Who the replicas of a proxy are. The first one takes what is published, the last one gives it out."""

    proxy: Peer
    number: int
    replicas: tuple[Peer, ...]


Message = (
    Advertise
    | Subscribe
    | Unsubscribe
    | Forward
    | Gossip
    | Notify
    | Request
    | Events
    | Publish
    | Published
    | Refused
    | ChainPush
    | ChainPull
    | ChainBeat
    | ChainIs
)
