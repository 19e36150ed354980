"""The settings of a node.

What a node *is* (its name, its data, its cluster) are the fields of `SiriusConfig` itself, and stand at the top of its
file. How its parts behave are sections: a dataclass in Python, a table of the same name in the file. So the common case
needs no nesting, `SiriusConfig(name="127.0.0.1:7400", members=[...], data="films")`, and there is no second spelling of
anything and no constructor that guesses: each setting has one name, the same in Python, in the file and in messages.

A configuration is a value. Making one opens no file and asks no network, and no environment variable changes it: what a
node does is to be read in one place.

Each thing is said once. Where a part of Sirius has a setting that follows from another, the methods below put it in:
`paxos_config`, `log_config` and `compaction_policy` are what the parts are started with.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from sirius.catchup.config import CatchupConfig
from sirius.config import address
from sirius.config.kinds import check, refuse
from sirius.config.source import StrPath, shown
from sirius.errors import UsageError
from sirius.paxos.config import PaxosConfig
from sirius.types import Seq
from sirius.wal import CompactionPolicy, Durability, Limits, LogConfig
from sirius.wal.block import ALIGN, ENTRY_BYTES, HEADER_BYTES

ROLES: Final = ("member", "follower", "client", "admin")

_BLOCK_BYTES_LIMIT: Final = 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSettings:
    """What callers of this node get, and how many there may be."""

    ack: Literal["applied", "decided"] = "applied"
    """When an update is answered: when this node's handler has returned, or when the update is in the log for good."""
    timeout_s: float = 5.0
    """How long a caller waits for room, and how long a request may stay undecided before it is reported as unknown."""
    outstanding_max: int = 65536
    """How many requests may wait for their answers. Further callers wait for room."""
    outstanding_bytes_max: int = 64 * 1024 * 1024
    """How many bytes of keys and bodies these may have."""

    _ZERO: ClassVar = frozenset[str]()

    def __post_init__(self) -> None:
        check(self, "requests", self._ZERO)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerSettings:
    """How the application's handler is called."""

    retries: int = 3
    """How often a call that raised is tried again before this node stops applying. Rejections are no failures."""
    retry_s: float = 0.1
    """The wait before the first of them; it doubles with each further one."""
    hang_s: float = 10.0
    """After how long the status calls a call hanging. It is not interrupted."""
    backlog_bytes_max: int = 64 * 1024 * 1024
    """How much that is decided and not yet applied is kept in memory. The rest is read from the log again."""
    behind_max: int = 100_000
    """How many updates the handler may be behind before this node takes no more requests for a while."""
    replay: Literal["serial", "parallel", "newest"] = "serial"
    """How the log is replayed at the start: as it was written; by several threads, each key in its order; or the last
    write of each key only."""
    replay_threads: int = 0
    """How many threads a parallel replay has; 0: one a core."""

    _ZERO: ClassVar = frozenset({"retries", "retry_s", "replay_threads"})

    def __post_init__(self) -> None:
        check(self, "handler", self._ZERO)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """The log on disk."""

    segment_bytes_max: int = 128 * 1024 * 1024
    """How large a segment grows before the next one begins."""
    segment_records_max: int = 1_000_000
    """How many records a segment has at most."""
    pending_bytes_max: int = 64 * 1024 * 1024
    """Appends wait when more than this is waiting for the disk."""
    retire_after_s: float = 600.0
    """How long a segment that compaction replaced stays for those who are reading it."""
    reserve_bytes: int = 32 * 1024 * 1024
    """Room kept on the disk so that compaction can still work when the disk is full; 0: none."""
    key_bytes_max: int = 32 * 1024
    """How long a key may be, in UTF-8. The same on all nodes, please, as the two that follow."""
    body_bytes_max: int = 16 * 1024 * 1024
    """How long a body may be."""
    block_bytes_max: int = 64 * 1024 * 1024
    """How long a block of the log may be; a longer one is not believed. One update of the greatest size must fit."""

    _ZERO: ClassVar = frozenset({"retire_after_s", "reserve_bytes"})

    def __post_init__(self) -> None:
        check(self, "log", self._ZERO)
        # Lengths are fields of 32 bits on disk, and a message has to hold a block.
        if self.block_bytes_max > _BLOCK_BYTES_LIMIT:
            refuse("log.block_bytes_max", self.block_bytes_max, f"at most {_BLOCK_BYTES_LIMIT}")
        if self.block_bytes_max < self.update_bytes_max:
            expected = (
                f"{self.update_bytes_max} or more, for one update of log.body_bytes_max = "
                f"{self.body_bytes_max} and log.key_bytes_max = {self.key_bytes_max}"
            )
            refuse("log.block_bytes_max", self.block_bytes_max, expected)

    @property
    def update_bytes_max(self) -> int:
        """How long the block of one update can be."""
        payload = ENTRY_BYTES + self.key_bytes_max + self.body_bytes_max
        return HEADER_BYTES + payload + -payload % ALIGN


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSettings:
    """Compaction while the node runs: what a newer update of the same key replaced goes."""

    enabled: bool = True
    """Whether this node compacts its log by itself."""
    interval_s: float = 3600.0
    """The time from the end of one pass to the beginning of the next. A pass reads the whole log."""
    dead_fraction_min: float = 0.25
    """Which part of a segment must be dead for it to be written anew; 0: all segments that have anything dead."""
    rate_bytes_s: float = 64 * 1024 * 1024
    """How much a pass reads and writes a second, on average; 0: as much as it can."""
    delete_age_s: float = 7 * 86400.0
    """How old a delete must be before it goes; every follower must have it as well. A node that was away for longer
    may have to take the whole log anew."""

    _ZERO: ClassVar = frozenset({"dead_fraction_min", "rate_bytes_s", "delete_age_s"})

    def __post_init__(self) -> None:
        check(self, "compaction", self._ZERO)
        if self.dead_fraction_min > 1:
            refuse("compaction.dead_fraction_min", self.dead_fraction_min, "a number from 0 to 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """Encryption, and who is who. Without a certificate everything travels as plain text."""

    certificate: StrPath | None = None
    """The file (PEM) with this node's certificate. Others are asked for one too. It must have the host of `name` among
    its alternative names: a node speaks for itself alone."""
    key: StrPath | None = None
    """The file (PEM) with the certificate's private key."""
    authority: StrPath | None = None
    """The file (PEM) with the certificates of those who may sign the others'."""
    roles: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Who may do what: a pattern of the names in a certificate (`*` stands for any characters), and a list of "member",
    "follower", "client", "admin". A certificate has the roles of all patterns that fit, and one that fits none has
    none: a certificate of the authority alone allows nothing."""

    def __post_init__(self) -> None:
        check(self, "tls")
        for name in _TLS_FILES:
            if (path := getattr(self, name)) is not None:
                _set(self, name, Path(path))
        self._check_files()
        for pattern, roles in self.roles.items():
            for position, role in enumerate(roles):
                if role not in ROLES:
                    expected = f"one of {', '.join(map(shown, ROLES))}"
                    refuse(f"tls.roles.{shown(pattern)}[{position}]", role, expected)
        _set(self, "roles", {pattern: tuple(roles) for pattern, roles in self.roles.items()})

    def _check_files(self) -> None:
        given = [name for name in _TLS_FILES if getattr(self, name) is not None]
        missing = [name for name in _TLS_FILES if name not in given]
        if given and missing:
            raise UsageError(
                f"tls.{given[0]} needs {' and '.join(f'tls.{name}' for name in missing)} as well"
            )
        if given and not self.roles:
            raise UsageError(
                "tls.roles is missing, so nobody may do anything: expected names in certificates and what "
                'their holders are, such as "*.films.example" = ["member"]'
            )

    @property
    def is_on(self) -> bool:
        """Whether there is a certificate."""
        return self.certificate is not None

    def roles_of(self, names: Iterable[str]) -> frozenset[str]:
        """Return what somebody may do whose certificate holds these names."""
        lower = [name.lower() for name in names]
        return frozenset(
            role
            for pattern, roles in self.roles.items()
            if any(fnmatchcase(name, pattern.lower()) for name in lower)
            for role in roles
        )


_TLS_FILES: Final = ("certificate", "key", "authority")


@dataclass(frozen=True, slots=True, kw_only=True)
class SiriusConfig:
    """Everything about a node. As it stands: alone, durable, under ./sirius-data, without a port."""

    name: str = ""
    """The "host:port" under which others reach this node; empty: embedded, no port is opened."""
    listen: str = ""
    """The "host:port" that is listened on, if it is another, such as "0.0.0.0:7400"; empty: `name`."""
    data: StrPath = Path("sirius-data")
    """The folder of the log and the journal. It belongs to this node alone."""
    region: str = ""
    """Nodes with the same text here are near each other: one of them fetches from elsewhere for all."""
    members: Sequence[str] | None = None
    """The names of the nodes that vote. A node that is not among them follows. Unset, and no `members_file`: this node
    is alone in its cluster. An empty list makes it passive: it neither votes nor leads."""
    members_file: StrPath | None = None
    """A file with these names, which is looked at again and again, so that members change without a restart."""
    members_poll_s: float = 5.0
    """How often the file is looked at."""
    follow: Sequence[str] = ()
    """The names of nodes that may be asked for updates besides the members: followers in a chain. With
    `catchup.prefer` = "nearest" they come before the members."""
    allow_plaintext: bool = False
    """Whether updates may leave this machine without TLS."""
    new_cluster: bool = False
    """Whether a log that was another cluster's, as a backup is, may become the data of a new cluster. The node must be
    its only member at first. It says nothing to a node that has a cluster."""
    durability: Durability | Literal["fsync", "os", "memory"] = Durability.FSYNC
    """When an update counts as written, in the journal and the log: "fsync": on disk; "os": handed to the operating
    system, which loses it if the machine loses power; "memory": at once, and lost if the process dies."""
    metrics: bool = True
    """Whether this node counts what it does, for Prometheus."""
    requests: RequestSettings = field(default_factory=RequestSettings)
    handler: HandlerSettings = field(default_factory=HandlerSettings)
    log: LogSettings = field(default_factory=LogSettings)
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    tls: TlsSettings = field(default_factory=TlsSettings)
    paxos: PaxosConfig = field(default_factory=PaxosConfig)
    catchup: CatchupConfig = field(default_factory=CatchupConfig)

    _ZERO: ClassVar = frozenset[str]()

    def __post_init__(self) -> None:
        check(self, zero=self._ZERO)
        check(self.paxos, "paxos")
        check(self.catchup, "catchup")
        self._check_sections()
        self._normalise()
        self._check_cluster()
        self._check_plaintext(_reached(self))
        self._check_sizes()

    @classmethod
    def load(cls, path: StrPath) -> SiriusConfig:
        """Read a TOML file. Raises `UsageError` with one line for each thing that is wrong in it.

        Paths in the file are relative to the file, and so is the default of `data`.
        """
        from sirius.config.loading import load

        return load(path)

    # ------------------------------------------------------------------ what the parts are started with

    @property
    def is_embedded(self) -> bool:
        """Whether this node has no port."""
        return not self.name

    @property
    def is_alone(self) -> bool:
        """Whether this node is a cluster of its own."""
        return self.members is None and self.members_file is None

    @property
    def listen_address(self) -> str:
        """The "host:port" to listen on; empty: none."""
        return self.listen or self.name

    def paxos_config(self) -> PaxosConfig:
        """Return the settings of the consensus machine."""
        return replace(self.paxos, request_timeout_s=self.requests.timeout_s)

    def limits(self) -> Limits:
        """Return the caps on what is written, for log and journal."""
        log = self.log
        return Limits(log.key_bytes_max, log.body_bytes_max, log.block_bytes_max)

    def log_config(self) -> LogConfig:
        """Return the settings of the log."""
        return LogConfig(
            durability=Durability(self.durability),
            segment_bytes_max=self.log.segment_bytes_max,
            segment_records_max=self.log.segment_records_max,
            pending_bytes_max=self.log.pending_bytes_max,
            retire_after_s=self.log.retire_after_s,
            reserve_bytes=self.log.reserve_bytes,
            limits=self.limits(),
        )

    def compaction_policy(self, now_us: int, followers_past: Seq) -> CompactionPolicy:
        """Return what a pass may do that begins at `now_us`, when every registered follower has `followers_past`."""
        settings = self.compaction
        keeps_all = settings.delete_age_s == math.inf
        age_us = 0 if keeps_all else round(settings.delete_age_s * 1_000_000)
        return CompactionPolicy(
            dead_fraction_min=settings.dead_fraction_min,
            drop_deletes_upto=Seq(0) if keeps_all else followers_past,
            drop_deletes_before_us=now_us - age_us if age_us else None,
            rate_bytes_per_s=settings.rate_bytes_s or None,
        )

    def check_members(self, names: Iterable[str]) -> None:
        """Refuse names from a member file that this node may not talk to. Raises `UsageError`."""
        self._check_plaintext(("members", name) for name in names)

    # ------------------------------------------------------------------ checks

    def _check_sections(self) -> None:
        if self.paxos.request_timeout_s not in (_TIMEOUT_S, self.requests.timeout_s):
            refuse("paxos.request_timeout_s", self.paxos.request_timeout_s, SAID_ELSEWHERE)

    def _normalise(self) -> None:
        _set(self, "data", Path(self.data))
        _set(self, "durability", Durability(self.durability))
        if self.members_file is not None:
            _set(self, "members_file", Path(self.members_file))
        for setting in ("name", "listen"):
            if text := getattr(self, setting):
                _set(self, setting, _address(setting, text))
        for setting in ("members", "follow"):
            if (names := getattr(self, setting)) is not None:
                _set(self, setting, unique_names(setting, names))

    def _check_cluster(self) -> None:
        if self.members is not None and self.members_file is not None:
            raise UsageError("members and members_file are both given: expected one of them")
        if self.is_embedded:
            for setting in ("listen", "members", "members_file", "follow"):
                if getattr(self, setting):
                    raise UsageError(f"{setting} needs name, under which others reach this node")
        elif address.is_wildcard(self.name):
            refuse("name", self.name, address.REACHABLE)
        if self.name in self.follow:
            refuse(f"follow[{self.follow.index(self.name)}]", self.name, "another node")

    def _check_plaintext(self, reached: Iterable[tuple[str, str]]) -> None:
        check_plaintext(reached, is_allowed=self.tls.is_on or self.allow_plaintext)

    def _check_sizes(self) -> None:
        least = self.log.update_bytes_max
        for setting, held in (
            ("requests.outstanding_bytes_max", self.requests.outstanding_bytes_max),
            ("paxos.accept_bytes_max", self.paxos.accept_bytes_max),
        ):
            if held < least:
                expected = (
                    f"{least} or more, for one update of log.body_bytes_max = "
                    f"{self.log.body_bytes_max}"
                )
                refuse(setting, held, expected)


SAID_ELSEWHERE: Final = "nothing, because requests.timeout_s says it"
_TIMEOUT_S: Final = PaxosConfig().request_timeout_s


def _reached(config: SiriusConfig) -> Iterable[tuple[str, str]]:
    """Every address of a configuration, and the setting that has it."""
    if config.name:
        yield "name", config.name
    if config.listen:
        yield "listen", config.listen
    yield from ((f"members[{at}]", name) for at, name in enumerate(config.members or ()))
    yield from ((f"follow[{at}]", name) for at, name in enumerate(config.follow))


def check_plaintext(reached: Iterable[tuple[str, str]], *, is_allowed: bool) -> None:
    """Refuse addresses of other machines, each with the setting that has it, unless that is allowed."""
    for setting, name in reached:
        if not is_allowed and not address.is_loopback(name):
            raise UsageError(
                f"{setting} = {shown(name)} is beyond this machine, and updates would travel as "
                "plain text: expected tls.certificate, or allow_plaintext = true"
            )


def unique_names(setting: str, names: Collection[str]) -> tuple[str, ...]:
    """Return names in their one spelling. Raises `UsageError` for one that is no address or is there twice."""
    found = address.Names()
    for position, text in enumerate(names):
        place = f"{setting}[{position}]"
        if expected := found.add(text, place):
            refuse(place, text, expected)
    return tuple(found)


def _address(setting: str, text: str) -> str:
    try:
        return address.normal(text)
    except ValueError as error:
        refuse(setting, text, str(error))


def _set(settings: Any, name: str, value: object) -> None:
    """Put a value into its one form while a frozen dataclass is being made."""
    object.__setattr__(settings, name, value)
