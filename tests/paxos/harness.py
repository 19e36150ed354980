"""Pure machines on a table: the test moves every message, every sync and every second by hand.

Not a test itself. A `Cluster` has nodes by name. Each has a machine, a `Disk` in memory, and messages that are held
back until the disk has what they say. `wire` holds what is on its way; `deliver`, `drop` and `again` do what a network
does. `settle` delivers and syncs until nothing moves, `run` lets time pass on top of it.

Whatever happens is written down in `trace`, in words, and every decision goes past `Judge`, which knows the whole
truth: agreement, order, at most once, and that nothing is acknowledged which is not decided.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sirius.paxos import (
    Codec,
    Configuration,
    Envelope,
    Machine,
    Member,
    Numbers,
    PaxosConfig,
    Recovered,
)
from sirius.paxos.acceptor import Under
from sirius.paxos.effects import (
    Answer,
    Done,
    Effects,
    Entry,
    KeepAccepted,
    KeepBallot,
    KeepNote,
    KeepPromise,
    Trim,
)
from sirius.paxos.messages import Message, TakeOver
from sirius.paxos.sessions import Sessions
from sirius.paxos.state import ACCEPTED, FOUNDED, JOINED
from sirius.paxos.values import PValue, Span, Spans
from sirius.types import NodeId, Seq
from tests.paxos.speaker import Speaker, show_answer, show_leader
from tests.paxos.timing import timed
from tests.paxos.words import WordCodec

CLUSTER = 77
STEP_S = 0.05


class Patient(random.Random):
    """Randomness that the test decides: every wait is the shortest plus a fixed part of what is left."""

    patience = 0.0

    def uniform(self, a: float, b: float) -> float:
        return a + (b - a) * self.patience


class Packet(NamedTuple):
    """A message on the wire."""

    source: str
    target: str
    envelope: Envelope

    @property
    def message(self) -> Any:
        return self.envelope.message

    @property
    def kind(self) -> str:
        return type(self.envelope.message).__name__


class Disk:
    """One life of a disk: a journal and a log. What is not synced is lost in a crash."""

    def __init__(self, codec: Any) -> None:
        self._codec = codec
        self.journal: list[Entry] = []
        self.log: list[Any] = []
        self.journal_synced = 0
        self.log_synced = 0

    def sync(self) -> None:
        self.journal_synced = len(self.journal)
        self.log_synced = len(self.log)

    def crash(self) -> None:
        """Forget what was not synced."""
        del self.journal[self.journal_synced :]
        del self.log[self.log_synced :]

    @property
    def stored(self) -> Seq:
        """The end of what the log has on disk."""
        return self.log[self.log_synced - 1].last if self.log_synced else Seq(0)

    def values(self, first: int) -> list[Any]:
        """What the log has from a slot on, for catch-up."""
        return [
            value.cut(max(value.first, first), value.last)
            for value in self.log
            if value.last >= first
        ]

    def recover(self, sessions_max: int) -> Recovered:
        """What the node finds when it starts again."""
        disk = Recovered(decided=self.log[-1].last if self.log else Seq(0))
        disk.sessions = Sessions(1, sessions_max)
        for value in self.log:
            content = self._codec.content(value)
            disk.sessions.learn(content, value.last)
            disk.configuration = content.configuration or disk.configuration
        self._replay(disk)
        return disk

    def _replay(self, disk: Recovered) -> None:
        spans = Spans()
        founded: Any = None
        for entry in self.journal:
            match entry:
                case KeepPromise(ballot):
                    disk.promised = max(disk.promised, ballot)
                case KeepBallot(ballot):
                    disk.highest = max(disk.highest, ballot)
                case KeepAccepted(ballot, value):
                    disk.promised = max(disk.promised, ballot)
                    spans.put(Span(value.first, value.last, ballot, value))
                case Trim(decided):
                    spans.forget(decided)
                case KeepNote(key, note) if key == FOUNDED:
                    founded = note
                case KeepNote(key, Under() as under):
                    assert key == ACCEPTED
                    disk.under = under
                case KeepNote(key, note):
                    assert key == JOINED
                    disk.cluster = int(str(note))
        disk.configuration = disk.configuration or founded
        disk.accepted = [
            PValue(span.ballot, span.cut) for span in spans if span.last > disk.decided
        ]


@dataclass
class Node:
    """A machine and what is around it; no machine while the node is down."""

    member: Member
    disk: Disk
    rng: Patient
    machine: Machine | None = None
    held: list[tuple[Member, Message]] = field(default_factory=list)
    ticket: int = 0
    answers: list[Answer] = field(default_factory=list)
    wish: Sequence[str] | None = None
    lives: int = 1


class Judge:
    """Knows what was decided, by whomever, and cries out when two truths meet."""

    def __init__(self, codec: Any, entries: Callable[[Any], Iterable[Any]]) -> None:
        self._codec = codec
        self._entries = entries
        self.decided: dict[int, Any] = {}
        self._slots: dict[tuple[int, int], int] = {}
        self.asked: dict[int, Sequence[Any]] = {}
        self.published: dict[int, Numbers] = {}

    def append(self, name: str, value: Any) -> None:
        """A node decided a value."""
        for entry in self._entries(value):
            known = self.decided.setdefault(entry.slot, entry)
            assert known == entry, f"agreement: {name} decided {entry}, another one {known}"
            if entry.session and not entry.is_mark:
                self._once(entry)

    def _once(self, entry: Any) -> None:
        key = (entry.session, entry.serial)
        slot = self._slots.setdefault(key, entry.slot)
        assert slot == entry.slot, f"at most once: {key} is in slots {slot} and {entry.slot}"
        if entry.serial > 1:
            before = self._slots.get((entry.session, entry.serial - 1))
            assert before is not None, f"order: {key} is in slot {slot}, the one before nowhere"
            assert before < slot, f"order: {key} is in slot {slot}, the one before in {before}"

    def leave_out(self, session: int, serial: int) -> None:
        """A publisher never sends this serial."""
        self._slots[session, serial] = 0

    def serials(self, session: int) -> int:
        """How many updates of a session were decided."""
        return sum(key[0] == session for key in self._slots)

    def answer(self, answer: Answer) -> None:
        """A node told somebody what became of a request."""
        if isinstance(answer, Done) and answer.token in self.asked:
            updates = self.asked[answer.token]
            if answer.token in self.published:
                self._published(answer, self.published[answer.token])
                return
            first = answer.last - len(updates) + 1
            found = [self.decided.get(first + at) for at in range(len(updates))]
            texts = [entry.text if entry else None for entry in found]
            assert texts == list(updates), f"acknowledged {updates}, but decided {texts}"

    def _published(self, answer: Done, numbers: Numbers) -> None:
        """What a publisher sent is there, wherever it is: it may have been sent before, in other portions."""
        for at, update in enumerate(self.asked[answer.token]):
            slot = self._slots.get((numbers.session, numbers.serial + at))
            assert slot is not None, f"acknowledged {update}, but it is nowhere"
            assert slot <= answer.last, f"acknowledged {update} at {answer.last}, it is in {slot}"
            assert self.decided[slot].text == update, f"{update} is not in {slot}"


def read_words(value: Any) -> Iterable[Any]:
    return value  # type: ignore[no-any-return]


class Cluster:
    """Some nodes and the wire between them."""

    def __init__(
        self,
        names: str = "abc",
        config: PaxosConfig | None = None,
        *,
        codec: Codec | None = None,
        founded: bool = True,
        seed: int = 1,
    ) -> None:
        self.config = config or timed()
        self.codec = codec or WordCodec()
        self.now = 0.0
        self.seed = seed
        self.nodes: dict[str, Node] = {}
        self.wire: deque[Packet] = deque()
        self.blocked: set[tuple[str, str]] = set()
        self.trace: list[str] = []
        self.speaker = Speaker()
        self.judge = Judge(self.codec, read_words)
        self.catching_up = True
        for name in names:
            self.add(name)
        if founded:
            self._found(names)
        for name in names:
            self.start(name)

    # ------------------------------------------------------------------ nodes

    def add(self, name: str) -> Node:
        """Give a node an empty disk; the letters of the alphabet are its ids."""
        lives = self.nodes[name].lives + 1 if name in self.nodes else 1
        member = Member(NodeId(ord(name) - 96 + 100 * (lives - 1)), name)
        rng = Patient(f"{self.seed} {name} {lives}")
        rng.patience = (ord(name) - 97) / 26
        node = Node(member, Disk(self.codec), rng, lives=lives)
        self.nodes[name] = node
        self.speaker.names[member.node] = name + "'" * (lives - 1)
        return node

    def _found(self, names: str) -> None:
        voters = tuple(self.nodes[name].member for name in names)
        for node in self.nodes.values():
            node.disk.journal.append(KeepNote(FOUNDED, Configuration(CLUSTER, 1, voters)))
            node.disk.sync()

    def start(self, name: str) -> None:
        """Start a node from its disk."""
        node = self.nodes[name]
        disk = node.disk.recover(self.config.sessions_max)
        node.machine = Machine(node.member, self.config, self.codec, node.rng, self.now, disk)
        node.held, node.ticket = [], 0
        if node.wish is not None:
            self._do(name, node.machine.wish(node.wish))

    def crash(self, name: str) -> None:
        """Stop a node at once; what was not synced is gone."""
        node = self.nodes[name]
        node.machine = None
        node.disk.crash()
        node.held = []

    def restart(self, name: str) -> None:
        self.crash(name)
        self.start(name)

    def lose_disk(self, name: str) -> None:
        """Stop a node, and start another under its name with an empty disk."""
        wish = self.nodes[name].wish
        self.crash(name)
        self.add(name).wish = wish
        self.start(name)

    def machine(self, name: str) -> Machine:
        machine = self.nodes[name].machine
        assert machine is not None, f"{name} is down"
        return machine

    def member(self, name: str) -> Member:
        return self.nodes[name].member

    @property
    def up(self) -> list[str]:
        return [name for name, node in self.nodes.items() if node.machine]

    @property
    def leaders(self) -> list[str]:
        return [name for name in self.up if self.machine(name).is_leader]

    @property
    def leader(self) -> str:
        (name,) = self.leaders
        return name

    def voters(self, name: str) -> list[str]:
        """The names of those who vote, as far as a node knows."""
        configuration = self.machine(name).configuration
        return [member.name for member in configuration.voters] if configuration else []

    def answers(self, name: str) -> list[Answer]:
        """Take the answers that a node has given."""
        node = self.nodes[name]
        answers, node.answers = node.answers, []
        return answers

    def log(self, name: str) -> list[str]:
        """The words that a node has decided, control entries left out."""
        return [
            word.text
            for value in self.nodes[name].disk.log
            for word in value
            if word.session and word.text != "-" and not word.is_mark
        ]

    # ------------------------------------------------------------------ what goes into a machine

    def propose(self, name: str, token: int, *texts: str) -> None:
        self.judge.asked[token] = texts
        self._do(name, self.machine(name).propose(token, texts, 10 * len(texts)))

    def publish(
        self, name: str, token: int, numbers: Numbers, *texts: str, size: int | None = None
    ) -> None:
        """Have updates decided that have numbers of their own."""
        self.judge.asked[token] = texts
        self.judge.published[token] = numbers
        size = 10 * len(texts) if size is None else size
        self._do(name, self.machine(name).propose(token, texts, size, numbers))

    def read(self, name: str, token: int) -> None:
        self._do(name, self.machine(name).read(token))

    def wish(self, name: str, names: Sequence[str] | None) -> None:
        self.nodes[name].wish = names
        self._do(name, self.machine(name).wish(names))

    def wish_all(self, names: Sequence[str] | None) -> None:
        for name in self.up:
            self.wish(name, names)

    def hand_over(self, name: str, to: str | None = None) -> None:
        self._do(name, self.machine(name).hand_over(self.member(to) if to else None))

    def disable(self, name: str, reason: str | None) -> None:
        self._do(name, self.machine(name).disable(reason))

    def learn(self, name: str, values: Sequence[Any]) -> None:
        self._do(name, self.machine(name).learn(values))

    def catch_up(self, name: str, source: str) -> None:
        """Give a node what another one's log has and its own has not."""
        self.learn(name, self.nodes[source].disk.values(self.machine(name).decided + 1))

    def campaign(self, name: str) -> None:
        """Have a node run for leader at once, as if it had been asked to take over."""
        machine = self.machine(name)
        self._step(name, machine.envelope(machine.me, TakeOver(machine.ballot)))

    def tick(self, *names: str) -> None:
        """Tell nodes the time."""
        for name in names or self.up:
            self._do(name, self.machine(name).tick(self.now))

    def wait(self, seconds: float) -> None:
        """Let time pass, without telling anybody."""
        self.now = round(self.now + seconds, 6)

    # ------------------------------------------------------------------ effects

    def _do(self, name: str, effects: Effects) -> None:
        node = self.nodes[name]
        node.disk.journal += effects.persist
        node.ticket = effects.ticket or node.ticket
        for entry in effects.persist:
            self._say(f"{name} keeps {self.speaker.show_entry(entry)}")
        for value in effects.append:
            self._append(name, value)
        for answer in effects.answers:
            self._say(f"{name} answers {show_answer(answer)}")
            self.judge.answer(answer)
            node.answers.append(answer)
        node.held += effects.send
        if node.disk.journal_synced == len(node.disk.journal):
            self._release(name)
        own = [to for to in effects.send_now if to[0] == node.member]
        for to, message in effects.send_now:
            if to != node.member:
                self._post(name, to, message)
        for _, message in own:
            self._step(name, self.machine(name).envelope(node.member, message))

    def _append(self, name: str, value: Any) -> None:
        node = self.nodes[name]
        self._say(f"{name} decides {self.speaker.show_value(value)}")
        last = node.disk.log[-1].last if node.disk.log else 0
        assert value.first == last + 1, f"order: {name} decides {value.first} behind {last}"
        self.judge.append(name, value)
        node.disk.log.append(value)

    def _post(self, name: str, to: Member, message: Message) -> None:
        packet = Packet(name, to.name, self.machine(name).envelope(to, message))
        self._say(f"{name} > {to.name}  {self.speaker.show(message)}")
        self.wire.append(packet)

    def _step(self, name: str, envelope: Envelope) -> None:
        self._do(name, self.machine(name).step(envelope))

    def sync(self, *names: str) -> None:
        """Put on disk what waits for it, and let out what was held back."""
        for name in names or self.up:
            node = self.nodes[name]
            node.disk.sync()
            self.machine(name).persisted(node.ticket)
            self.machine(name).stored(node.disk.stored)
            self._release(name)

    def _release(self, name: str) -> None:
        node = self.nodes[name]
        held, node.held = node.held, []
        for to, message in held:
            if to == node.member:
                self._step(name, self.machine(name).envelope(to, message))
            else:
                self._post(name, to, message)

    # ------------------------------------------------------------------ the network

    def packets(self, pattern: str = "") -> list[Packet]:
        """What is on the wire: `a>b Accept`, `>b`, `a>`, `Accept`, or all of it."""
        return [packet for packet in self.wire if matches(packet, pattern)]

    def deliver(self, pattern: str = "") -> int:
        """Deliver what is on the wire now and matches; what it causes is left on the wire. Return how many."""
        chosen = self.packets(pattern)
        for packet in chosen:
            self.wire.remove(packet)
            self.arrive(packet)
        return len(chosen)

    def arrive(self, packet: Packet) -> None:
        """Hand a message over, unless its link is cut or its target down."""
        link = (packet.source, packet.target)
        node = self.nodes.get(packet.target)
        if link not in self.blocked and node is not None and node.machine is not None:
            self._step(packet.target, packet.envelope)

    def drop(self, pattern: str = "") -> list[Packet]:
        """Lose what matches; return it, in case it turns up late."""
        chosen = self.packets(pattern)
        for packet in chosen:
            self.wire.remove(packet)
        return chosen

    def cut(self, *sides: str) -> None:
        """Let only nodes on the same side hear each other."""
        self.blocked = {
            (one, two)
            for one in self.nodes
            for two in self.nodes
            if not any(one in side and two in side for side in sides)
        }

    def cut_off(self, name: str) -> None:
        self.cut(name, "".join(other for other in self.nodes if other != name))

    def heal(self) -> None:
        self.blocked = set()

    # ------------------------------------------------------------------ letting it go

    def settle(self, rounds_max: int = 1000) -> None:
        """Deliver and sync until nothing moves. A storm of messages is an error."""
        for _ in range(rounds_max):
            self.sync()
            if not self.deliver() and not self._catch_up_all():
                return
        raise AssertionError(
            f"no end of messages: {[self.speaker.show(p.message) for p in self.wire][:5]}"
        )

    def _catch_up_all(self) -> bool:
        moved = False
        for name in self.up if self.catching_up else ():
            machine = self.machine(name)
            for other in self.up:
                behind = machine.known > machine.decided
                reachable = not {(name, other), (other, name)} & self.blocked
                if behind and reachable and self.machine(other).decided > machine.decided:
                    self.catch_up(name, other)
                    moved = True
        return moved

    def run(self, seconds: float, step_s: float = STEP_S) -> None:
        """Let time pass, with a network and disks that work at once."""
        end = self.now + seconds
        while self.now < end - 1e-9:
            self.wait(step_s)
            self.tick()
            self.settle()

    def elect(self, name: str) -> None:
        """Have a node lead: it is the least patient one."""
        for other, node in self.nodes.items():
            node.rng.patience = 0.0 if other == name else 0.9
        for other in self.up:
            machine = self.machine(other)
            machine._state.election.rest(self.now)
        self.run(2.0)
        assert self.leader == name

    # ------------------------------------------------------------------ in words

    def _say(self, line: str) -> None:
        self.trace.append(line)

    def status(self) -> Iterator[str]:
        """One line a node."""
        for name, node in self.nodes.items():
            if node.machine is None:
                yield f"{name} is down"
            else:
                yield f"{name} {self._status(node.machine)}"

    def _status(self, machine: Machine) -> str:
        role = "leads" if machine.is_leader else "follows " + show_leader(machine)
        configuration = machine.configuration
        shown = self.speaker.show_configuration(configuration) if configuration else "no cluster"
        behind = f" of {machine.known}" if machine.known > machine.decided else ""
        promised = self.speaker.show_ballot(machine.ballot)
        return f"{role}, decided {machine.decided}{behind}, promised {promised}, {shown}"


def matches(packet: Packet, pattern: str) -> bool:
    """Say whether a packet is one of `a>b Accept`; each part may be missing."""
    link, _, kind = pattern.rpartition(" ") if " " in pattern else ("", "", pattern)
    if ">" in kind:
        link, kind = kind, ""
    source, _, target = link.partition(">")
    wanted = ((source, packet.source), (target, packet.target), (kind, packet.kind))
    return all(not want or want == have for want, have in wanted)
