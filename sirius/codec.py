"""Between consensus and the log: values are blocks of the log, encoded once, by the leader."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final

import numpy as np

from sirius.paxos.members import Configuration, Member
from sirius.paxos.values import Content, Request, Run
from sirius.types import Ballot, NodeId, Seq
from sirius.wal.block import ENTRY, Block, Entries, assemble, seal
from sirius.wal.record import DEFAULT_LIMITS, Limits, Op, Update

MEMBERSHIP_KEY: Final = b"membership"
"""All membership entries have one key, so compaction keeps the newest."""
_MEMBERSHIP: Final = np.uint8(Op.MEMBERSHIP)
_NOTHING: Final = Update(Op.NOOP, b"")


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
            entries["session"][at:end] = request.session
            entries["serial"][at:end] = np.arange(request.serial, request.serial + end - at)
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
        has_holes = len(entries) < value.last - value.first + 1
        runs = () if has_holes else _runs(entries)
        return Content(runs, _configurations(value), has_holes)


def _updates(request: Request) -> Sequence[Update]:
    return [_NOTHING] * len(request.updates) if request.cancelled else request.updates


def _runs(entries: Entries) -> tuple[Run, ...]:
    sessions = entries["session"]
    ends = (sessions[1:] != sessions[:-1]).nonzero()[0].tolist()
    ends.append(len(entries) - 1)
    found = []
    for end in ends:
        session = int(sessions[end])
        if session:
            found.append(Run(session, int(entries["serial"][end]), Seq(int(entries["seq"][end]))))
    return tuple(found)


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
