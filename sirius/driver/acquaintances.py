"""What is known of other nodes from what they say: which life of each there is, whose it is, how soon it answers."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from sirius.paxos.members import Member
from sirius.paxos.messages import Beat, BeatAck, Decided, Envelope, Forward

_log = logging.getLogger("sirius.node")
_BEATS_MAX: Final = 64
"""Heartbeats whose answers are waited for: some seconds' worth."""
_NAMES_MAX: Final = 1000
"""Names come from the network, so there may be any number of them."""
_COMPANY_S: Final = 0.001
"""How long word of a decision waits for the next Accept, which brings it as well."""


class Acquaintances:
    """One node's. The loop's thread writes; any thread may look a name up."""

    def __init__(self, followed: Collection[str] = ()) -> None:
        self._followed = frozenset(followed)
        self.lives: dict[str, Member] = {}
        """The last life of each node of `follow`."""
        self.strangers: dict[str, int] = {}
        """The names of nodes of other clusters, with those. Consensus takes no notice of what they say."""
        self.round_trips: dict[str, float] = {}
        """How long it took a node to answer a heartbeat, the last time."""
        self._beats: dict[int, float] = {}
        self._asking: set[str] = set()
        """Who has sent requests since it was told of a decision."""

    def sent(self, to: Member, envelope: Envelope, now: float) -> float:
        """A message goes out; return how long it may wait for another one to the same node.

        A word of a decision that nobody waits for may. A caller here who asks for one update after the other is
        answered sooner if the loop does not send that word first.
        """
        message = envelope.message
        if type(message) is Beat:
            self._note_beat(message.number, now)
        elif type(message) is Decided:
            if to.name not in self._asking:
                return _COMPANY_S
            self._asking.remove(to.name)
        return 0.0

    def _note_beat(self, number: int, now: float) -> None:
        if number not in self._beats:
            self._beats[number] = now
            if len(self._beats) > _BEATS_MAX:
                del self._beats[next(iter(self._beats))]

    def received(self, envelope: Envelope, cluster: int, now: float) -> None:
        """A message has come in, to a node of a cluster; 0: it has none yet."""
        name = envelope.sender.name
        if name in self._followed:
            self.lives[name] = envelope.sender
        if envelope.cluster != cluster and envelope.cluster and cluster:
            self._meet(name, envelope.cluster, cluster)
        elif self.strangers:
            self.strangers.pop(name, None)
        if type(envelope.message) is BeatAck:
            sent_at = self._beats.get(envelope.message.number)
            if sent_at is not None:
                self.round_trips[name] = now - sent_at
        elif type(envelope.message) is Forward and len(self._asking) < _NAMES_MAX:
            self._asking.add(name)

    def _meet(self, name: str, theirs: int, ours: int) -> None:
        if self.strangers.get(name) == theirs or len(self.strangers) >= _NAMES_MAX:
            return
        self.strangers[name] = theirs
        _log.warning(
            "%s belongs to the cluster %016x, and this node to %016x: neither takes anything from the other",
            name,
            theirs,
            ours,
        )
