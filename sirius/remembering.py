"""What a node's disk remembers of it, besides what was decided: who it is, whose it is, and what it promised.

Consensus speaks of entries to keep; here they go into the journal, and come back when a node starts.
"""

from __future__ import annotations

import random
from typing import Final

from sirius.codec import BlockCodec, from_json, to_json
from sirius.paxos.acceptor import Under
from sirius.paxos.effects import Entry, KeepAccepted, KeepBallot, KeepNote, KeepPromise, Trim
from sirius.paxos.members import Configuration
from sirius.paxos.sessions import Sessions
from sirius.paxos.state import ACCEPTED, FOUNDED, JOINED, Recovered
from sirius.paxos.values import SLOT_MAX, PValue
from sirius.types import Ballot, NodeId
from sirius.wal import Log
from sirius.wal.journal import Journal

CLUSTER_TAG: Final = "cluster"
"""The tag of a log that says which cluster took its node in."""
_NODE: Final = b"node"


def keep(journal: Journal, entry: Entry) -> int:
    """Put one entry into the journal; return its ticket."""
    match entry:
        case KeepPromise(ballot):
            return journal.promise(ballot)
        case KeepBallot(ballot):
            return journal.use_ballot(ballot)
        case KeepAccepted(ballot, value):
            return journal.accept(ballot, value)  # type: ignore[arg-type]
        case Trim(decided):
            return journal.trim(decided)
        case KeepNote(key, value):
            return journal.note(key.encode(), _note(value))


def _note(value: object) -> bytes:
    if isinstance(value, Configuration):
        return to_json(value)
    if isinstance(value, Under):
        return b"%d.%d.%d" % (*value.ballot, value.first)
    return str(value).encode()


def _under(note: bytes) -> Under:
    number, node, first = map(int, note.split(b"."))
    return Under(Ballot(number, node), first)


def identity(journal: Journal, rng: random.Random) -> NodeId:
    """Return the node id that this disk holds; an empty one gets a new one, and with it no vote."""
    if (found := journal.notes.get(_NODE)) is not None:
        return NodeId(int(found))
    node = NodeId(rng.getrandbits(63) | 1)
    journal.note(_NODE, str(node).encode())
    journal.flush()
    return node


def recover(
    log: Log, journal: Journal, codec: BlockCodec, sessions_max: int, new_cluster: bool
) -> Recovered:
    """Return what the disk remembers. With `new_cluster` a log that was another cluster's belongs to none."""
    decided = log.durable_seq
    founded = journal.notes.get(FOUNDED.encode())
    configuration = from_json(founded) if founded else None
    joined = _joined(log, journal, new_cluster)
    # A cluster that was founded on a backup has the configurations of another one in its log.
    cluster = configuration.cluster if configuration else joined
    is_told = configuration is not None
    sessions = Sessions(1, sessions_max)
    for block in log.blocks():
        content = codec.content(block)
        sessions.learn(content, block.last)
        for found in content.configurations:
            if found.cluster == cluster or not (cluster or new_cluster):
                configuration, is_told = found, False
    return Recovered(
        decided=decided,
        promised=journal.promised,
        highest=journal.highest_ballot,
        accepted=[PValue(*each) for each in journal.accepted(decided + 1, SLOT_MAX)],
        under=_under(under) if (under := journal.notes.get(ACCEPTED.encode())) else None,
        cluster=joined,
        configuration=configuration,
        founded=is_told,
        sessions=sessions,
    )


def _joined(log: Log, journal: Journal, new_cluster: bool) -> int:
    """Return the cluster that took this node in, or 0."""
    if (note := journal.notes.get(JOINED.encode())) is not None:
        return int(note)
    return 0 if new_cluster else int(log.manifest.tags.get(CLUSTER_TAG, 0))
