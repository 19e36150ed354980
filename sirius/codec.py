"""Between consensus and the log: values are blocks of the log, encoded once, by the leader."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Final

import numpy as np
import numpy.typing as npt

from sirius.paxos.members import Configuration, Member
from sirius.paxos.values import PUBLISHERS, Content, Request, Run
from sirius.types import Ballot, NodeId, Seq
from sirius.wal.block import ENTRY, Block, Entries, assemble, seal
from sirius.wal.record import CONTROL_FROM, DEFAULT_LIMITS, Limits, Op, Update

MEMBERSHIP_KEY: Final = b"membership"
"""All membership entries have one key, so compaction keeps the newest."""
_MEMBERSHIP: Final = np.uint8(Op.MEMBERSHIP)
_SESSION: Final = np.uint8(Op.SESSION)
_NOTHING: Final = Update(Op.NOOP, b"")

Sessions = npt.NDArray[np.uint64]


class BlockCodec:
    """Makes blocks of requests, and reads off blocks what consensus wants to know.

    The updates of a request are `sirius.wal.Update`s, checked before (`sirius.wal.record.check_updates`); session and
    serial come from the request.
    """

    def __init__(self, now_us: Callable[[], int], limits: Limits = DEFAULT_LIMITS) -> None:
        self._now_us = now_us
        self._limits = limits

    def encode(self, first: int, requests: Sequence[Request]) -> Block:
        """Give the updates of the requests the slots from `first` on."""
        updates = list(chain.from_iterable(map(_updates, requests)))
        keys = [update.key for update in updates]
        bodies = [update.body for update in updates]
        entries = self._entries(first, len(updates))
        entries["op"] = np.frombuffer(bytes([update.op for update in updates]), np.uint8)
        at = 0
        for request in requests:
            end = at + len(request.updates)
            entries["serial"][at:end] = np.arange(request.serial, request.serial + end - at)
            if request.session >= PUBLISHERS:
                entries["serial"][end] = request.last_serial
                end += 1
            entries["session"][at:end] = request.session
            at = end
        return assemble(first, first + at - 1, entries, keys, bodies, self._limits)

    def join(self, values: Sequence[Block]) -> Block:
        """Make one block of some that follow each other; the entries stay as they are."""
        if len(values) == 1:
            return values[0]
        entries = np.concatenate([block.entries for block in values])
        keys = [block.raw[block.keys_at : block.bodies_at] for block in values]
        bodies = [
            block.raw[block.bodies_at : block.bodies_at + block.header.bodies_len]
            for block in values
        ]
        return seal(values[0].first, values[-1].last, entries, keys, bodies)

    def membership(self, slot: int, configuration: Configuration) -> Block:
        """Write a configuration down as an entry."""
        entries = self._entries(slot, 1)
        entries["op"] = Op.MEMBERSHIP
        body = [to_json(configuration)]
        return assemble(slot, slot, entries, [MEMBERSHIP_KEY], body, self._limits)

    def _entries(self, first: int, count: int) -> Entries:
        entries = np.zeros(count, ENTRY)
        entries["seq"] = np.arange(first, first + count, dtype=np.uint64)
        entries["ts"] = self._now_us()
        return entries

    def content(self, value: Block) -> Content:
        """Read off what consensus wants to know."""
        entries = value.entries
        if has_holes := len(entries) < value.last - value.first + 1:
            return Content(_marks(entries), _configurations(value), has_holes)
        if int(entries["op"].max()) < CONTROL_FROM:
            return Content(_runs(entries, entries["session"]))
        return Content(_all_runs(entries), _configurations(value))


def _updates(request: Request) -> Sequence[Update]:
    if request.cancelled:
        return [_NOTHING] * len(request.updates)
    if request.session >= PUBLISHERS:
        return [*request.updates, Update(Op.SESSION, b"%016x" % request.session)]
    return request.updates


def _runs(entries: Entries, sessions: Sessions) -> tuple[Run, ...]:
    ends = (sessions[1:] != sessions[:-1]).nonzero()[0].tolist()
    ends.append(len(entries) - 1)
    found = []
    for end in ends:
        session = int(sessions[end])
        if session:
            found.append(Run(session, int(entries["serial"][end]), Seq(int(entries["seq"][end]))))
    return tuple(found)


def _all_runs(entries: Entries) -> tuple[Run, ...]:
    """Return the runs of entries among which may be marks. A mark ends its publisher's run and is no part of it."""
    is_mark = entries["op"] == _SESSION
    if not is_mark.any():
        return _runs(entries, entries["session"])
    # Where marks stand there is no session, so that those in front of and behind one are not taken for one run.
    return _merged(_runs(entries, np.where(is_mark, 0, entries["session"])), _marks(entries))


def _marks(entries: Entries) -> tuple[Run, ...]:
    """Return what marks say: the last serial of a publisher's request, and its slot, right in front of the mark."""
    found = entries[entries["op"] == _SESSION]
    columns = (found[name].tolist() for name in ("session", "serial", "seq"))
    return tuple(
        Run(session, serial, Seq(seq - 1)) for session, serial, seq in zip(*columns, strict=True)
    )


def _merged(runs: Sequence[Run], marks: Sequence[Run]) -> tuple[Run, ...]:
    """Return all runs in the order of the log, those that are told twice once."""
    return tuple(sorted({*runs, *marks}, key=attrgetter("last_slot")))


def _configurations(block: Block) -> tuple[Configuration, ...]:
    """Return the configurations in a block; nearly always there is none."""
    found = (block.entries["op"] == _MEMBERSHIP).nonzero()[0]
    if not len(found):
        return ()
    ends = block.bodies_at + np.cumsum(block.entries["body_len"], dtype=np.int64)
    starts = ends - block.entries["body_len"]
    return tuple(from_json(block.raw[starts[at] : ends[at]]) for at in found.tolist())


def to_json(configuration: Configuration) -> bytes:
    """Write a configuration so that a person can read it too."""
    return json.dumps(
        {
            "cluster": configuration.cluster,
            "number": configuration.number,
            "voters": configuration.voters,
            "learners": configuration.learners,
            "reign": configuration.reign,
        },
        separators=(",", ":"),
    ).encode()


def from_json(body: bytes) -> Configuration:
    """Read it back."""
    fields = json.loads(body)
    return Configuration(
        fields["cluster"],
        fields["number"],
        tuple(Member(NodeId(node), name) for node, name in fields["voters"]),
        tuple(Member(NodeId(node), name) for node, name in fields["learners"]),
        Ballot(*fields["reign"]),
    )
