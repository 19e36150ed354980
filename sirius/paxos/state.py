"""What the parts of one machine share: who it is, what it knows, and what it asks for."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from sirius.paxos.acceptor import Acceptor, Under
from sirius.paxos.config import PaxosConfig
from sirius.paxos.effects import Effects, Entry, KeepBallot, KeepNote, Trim
from sirius.paxos.election import Election
from sirius.paxos.leader import Leader
from sirius.paxos.members import Configuration, Member
from sirius.paxos.messages import Message
from sirius.paxos.proposer import Proposer
from sirius.paxos.publishers import Publishers
from sirius.paxos.replica import Replica
from sirius.paxos.scout import Scout
from sirius.paxos.sessions import Sessions
from sirius.paxos.values import PUBLISHERS, Codec, Content, PValue, Value
from sirius.types import NO_BALLOT, Ballot, NodeId, Seq

FOUNDED = "founded"
"""The note that holds the configuration of a cluster which this node helped to found."""
ACCEPTED = "accepted"
"""The note that holds the ballot under which this node accepted last."""
JOINED = "joined"
"""The note that holds the id of the cluster to which this node belongs."""
SEEN_MAX = 1_000
"""How many names a node remembers. Whoever is forgotten greets again, for as long as it is there."""


@dataclass(slots=True)
class Recovered:
    """What a node's disk remembers. The default is an empty one."""

    decided: Seq = Seq(0)
    """The end of the log."""
    promised: Ballot = NO_BALLOT
    highest: Ballot = NO_BALLOT
    """The highest ballot that this node ever used."""
    accepted: Iterable[PValue] = ()
    under: Under | None = None
    """Under which ballot it accepted last, as noted; a value may bear a higher one."""
    cluster: int = 0
    configuration: Configuration | None = None
    """The last one in the log, or the founding one."""
    founded: bool = False
    """Whether it is the founding one, as this node drew it or was told, and not from the log."""
    sessions: Sessions | None = None


@dataclass(slots=True)
class State:
    """The shared part. `now` is the time of the last tick."""

    me: Member
    config: PaxosConfig
    codec: Codec
    rng: random.Random
    now: float
    replica: Replica
    acceptor: Acceptor
    election: Election
    proposer: Proposer
    publishers: Publishers
    highest: Ballot
    """The highest ballot seen or used."""
    used: Ballot
    cluster: int
    founded: bool = False
    """Whether this node has helped to found its cluster."""
    wish: tuple[str, ...] | None = None
    """The names that should vote; None if nobody has said. Nobody: this node is passive."""
    seen: dict[str, NodeId] = field(default_factory=dict)
    """The last life of each name that was heard of, of so many names at most."""
    leader: Leader | None = None
    scout: Scout | None = None
    unable: str | None = None
    """Why this node can neither vote nor lead for now."""
    out: Effects = field(default_factory=Effects)
    trimmed: Seq = Seq(0)
    trim_due: Seq = Seq(0)
    tickets: int = 0
    repeated: int = 0
    """How often an Accept was sent again."""

    @classmethod
    def recover(
        cls,
        me: Member,
        config: PaxosConfig,
        codec: Codec,
        rng: random.Random,
        now: float,
        disk: Recovered,
    ) -> State:
        sessions = disk.sessions
        if sessions is None:
            sessions = Sessions(disk.decided + 1, config.sessions_max)
        replica = Replica(codec, disk.decided, disk.configuration, sessions)
        cluster = disk.configuration.cluster if disk.configuration else disk.cluster
        return cls(
            me=me,
            config=config,
            codec=codec,
            rng=rng,
            now=now,
            replica=replica,
            acceptor=Acceptor(disk.promised, disk.accepted, disk.under),
            election=Election(config, rng, now),
            proposer=Proposer(config, lambda: rng.getrandbits(63) | 1, disk.decided),
            publishers=Publishers(config),
            highest=max(disk.promised, disk.highest),
            used=disk.highest,
            cluster=cluster,
            founded=disk.founded,
        )

    # ------------------------------------------------------------------ who

    @property
    def configuration(self) -> Configuration | None:
        return self.replica.configuration

    @property
    def is_voter(self) -> bool:
        return self.configuration is not None and self.configuration.is_voter(self.me.node)

    @property
    def is_founding(self) -> bool:
        """Whether this node's cluster may not have begun: it was founded, and nothing is known to be decided in it."""
        return self.founded and not self.replica.decided

    @property
    def is_passive(self) -> bool:
        return self.wish == ()

    @property
    def is_fresh(self) -> bool:
        """Whether this node belongs to no cluster and has never voted."""
        return not self.cluster and self.acceptor.promised == NO_BALLOT and not self.replica.decided

    @property
    def others(self) -> list[Member]:
        """The other voters."""
        voters = self.configuration.voters if self.configuration else ()
        return [member for member in voters if member != self.me]

    def has_seen(self, member: Member) -> None:
        """A node has spoken for itself: this is the life that its name has now."""
        if member.name not in self.seen and len(self.seen) >= SEEN_MAX:
            del self.seen[next(iter(self.seen))]
        self.seen[member.name] = member.node

    # ------------------------------------------------------------------ asking for things

    def persist(self, entry: Entry) -> None:
        if self.trim_due:
            self.out.persist.append(Trim(self.trim_due))
            self.trim_due = Seq(0)
        self.out.persist.append(entry)

    def send(self, to: Member, message: Message) -> None:
        """Send a message that speaks of what this node has promised or accepted."""
        self.out.send.append((to, message))

    def send_now(self, to: Member, message: Message) -> None:
        """Send a message that does not depend on the disk. To oneself none is needed."""
        self.out.send_now.append((to, message))

    def tell_others(self, message: Message) -> None:
        """Send a message to all other voters and the learners, now."""
        members = self.configuration.members if self.configuration else ()
        for member in members:
            if member != self.me:
                self.out.send_now.append((member, message))

    # ------------------------------------------------------------------ what happens everywhere

    def notice(self, ballot: Ballot) -> None:
        """A ballot was seen. One above one's own ends what one was doing with it."""
        self.highest = max(self.highest, ballot)
        if self.leader is not None and ballot > self.leader.ballot:
            self.resign()
        if self.scout is not None and ballot > self.scout.ballot:
            self.scout = None

    def resign(self) -> None:
        """Stop leading and scouting, and wait for somebody else to lead."""
        if self.leader is not None or self.scout is not None:
            self.leader = self.scout = None
            self.election.forget_leader()
            self.election.rest(self.now)
            self.rewind()

    def rewind(self) -> None:
        """Have every request that was sent sent again: there may be somebody else to take it."""
        self.proposer.rewind()
        self.publishers.rewind()

    def expected(self, session: int, serial: int) -> None:
        """A leader takes nothing of a session but this serial next."""
        if session >= PUBLISHERS:
            self.publishers.expected(session, serial)
        else:
            self.out.answers += self.proposer.expected(session, serial, self.replica.decided)

    def new_ballot(self) -> Ballot:
        """Return a ballot above all that were seen, and have it kept: it is never used again."""
        ballot = Ballot(max(self.highest, self.used).round + 1, self.me.node)
        self.highest = self.used = ballot
        self.persist(KeepBallot(ballot))
        return ballot

    def decide(self, value: Value) -> Content:
        """Take the next decided value: it goes to the log, and to whoever waits for it."""
        content = self.replica.decide(value)
        self.out.append.append(value)
        if content.has_holes:
            self.out.answers += self.proposer.lose(self.replica.decided)
        for run in content.runs:
            self.out.answers += self.proposer.decided(run)
            self.out.answers += self.publishers.decided(run)
        if content.configuration is not None and not self.cluster:
            self.join(content.configuration.cluster)
        if self.leader is not None and not self.is_voter:
            self.resign()
        return content

    def found(self, configuration: Configuration) -> None:
        """Belong to a cluster that is about to begin."""
        self.cluster = configuration.cluster
        self.replica.configuration = configuration
        self.founded = True

    def leave(self) -> None:
        """Belong to no cluster again: the one that was to begin never will."""
        self.resign()
        self.election.forget_leader()
        self.persist(KeepNote(FOUNDED, ""))
        self.join(0)
        self.replica.configuration = None
        self.founded = False

    def join(self, cluster: int) -> None:
        """Belong to a cluster from now on; 0 is none."""
        self.cluster = cluster
        self.persist(KeepNote(JOINED, cluster))
