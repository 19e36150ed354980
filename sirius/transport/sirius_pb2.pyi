from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Frame(_message.Message):
    __slots__ = ("envelopes",)
    ENVELOPES_FIELD_NUMBER: _ClassVar[int]
    envelopes: _containers.RepeatedCompositeFieldContainer[Envelope]
    def __init__(self, envelopes: _Optional[_Iterable[_Union[Envelope, _Mapping]]] = ...) -> None: ...

class LinkReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FilePiece(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Envelope(_message.Message):
    __slots__ = ("cluster", "number", "sender", "to", "blobs", "accept", "accepted", "decided", "beat", "beat_ack", "forward", "push", "subscribe", "prepare", "promise", "preempted", "pre_vote", "pre_voted", "expected", "ask_index", "read_index", "take_over", "hello", "welcome", "found", "pull", "range", "unavailable", "resync", "busy", "pull_segments", "segments", "pull_file", "here")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    DECIDED_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    BEAT_ACK_FIELD_NUMBER: _ClassVar[int]
    FORWARD_FIELD_NUMBER: _ClassVar[int]
    PUSH_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    PREPARE_FIELD_NUMBER: _ClassVar[int]
    PROMISE_FIELD_NUMBER: _ClassVar[int]
    PREEMPTED_FIELD_NUMBER: _ClassVar[int]
    PRE_VOTE_FIELD_NUMBER: _ClassVar[int]
    PRE_VOTED_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    ASK_INDEX_FIELD_NUMBER: _ClassVar[int]
    READ_INDEX_FIELD_NUMBER: _ClassVar[int]
    TAKE_OVER_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    PULL_FIELD_NUMBER: _ClassVar[int]
    RANGE_FIELD_NUMBER: _ClassVar[int]
    UNAVAILABLE_FIELD_NUMBER: _ClassVar[int]
    RESYNC_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    PULL_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    PULL_FILE_FIELD_NUMBER: _ClassVar[int]
    HERE_FIELD_NUMBER: _ClassVar[int]
    cluster: int
    number: int
    sender: Member
    to: int
    blobs: _containers.RepeatedScalarFieldContainer[bytes]
    accept: Accept
    accepted: Accepted
    decided: Decided
    beat: Beat
    beat_ack: BeatAck
    forward: Forward
    push: Push
    subscribe: Subscribe
    prepare: Prepare
    promise: Promise
    preempted: Preempted
    pre_vote: PreVote
    pre_voted: PreVoted
    expected: Expected
    ask_index: AskIndex
    read_index: ReadIndex
    take_over: TakeOver
    hello: Hello
    welcome: Welcome
    found: Found
    pull: Pull
    range: Range
    unavailable: Unavailable
    resync: Resync
    busy: Busy
    pull_segments: PullSegments
    segments: Segments
    pull_file: PullFile
    here: Here
    def __init__(self, cluster: _Optional[int] = ..., number: _Optional[int] = ..., sender: _Optional[_Union[Member, _Mapping]] = ..., to: _Optional[int] = ..., blobs: _Optional[_Iterable[bytes]] = ..., accept: _Optional[_Union[Accept, _Mapping]] = ..., accepted: _Optional[_Union[Accepted, _Mapping]] = ..., decided: _Optional[_Union[Decided, _Mapping]] = ..., beat: _Optional[_Union[Beat, _Mapping]] = ..., beat_ack: _Optional[_Union[BeatAck, _Mapping]] = ..., forward: _Optional[_Union[Forward, _Mapping]] = ..., push: _Optional[_Union[Push, _Mapping]] = ..., subscribe: _Optional[_Union[Subscribe, _Mapping]] = ..., prepare: _Optional[_Union[Prepare, _Mapping]] = ..., promise: _Optional[_Union[Promise, _Mapping]] = ..., preempted: _Optional[_Union[Preempted, _Mapping]] = ..., pre_vote: _Optional[_Union[PreVote, _Mapping]] = ..., pre_voted: _Optional[_Union[PreVoted, _Mapping]] = ..., expected: _Optional[_Union[Expected, _Mapping]] = ..., ask_index: _Optional[_Union[AskIndex, _Mapping]] = ..., read_index: _Optional[_Union[ReadIndex, _Mapping]] = ..., take_over: _Optional[_Union[TakeOver, _Mapping]] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., found: _Optional[_Union[Found, _Mapping]] = ..., pull: _Optional[_Union[Pull, _Mapping]] = ..., range: _Optional[_Union[Range, _Mapping]] = ..., unavailable: _Optional[_Union[Unavailable, _Mapping]] = ..., resync: _Optional[_Union[Resync, _Mapping]] = ..., busy: _Optional[_Union[Busy, _Mapping]] = ..., pull_segments: _Optional[_Union[PullSegments, _Mapping]] = ..., segments: _Optional[_Union[Segments, _Mapping]] = ..., pull_file: _Optional[_Union[PullFile, _Mapping]] = ..., here: _Optional[_Union[Here, _Mapping]] = ...) -> None: ...

class Ballot(_message.Message):
    __slots__ = ("round", "node")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    round: int
    node: int
    def __init__(self, round: _Optional[int] = ..., node: _Optional[int] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("node", "name")
    NODE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    node: int
    name: str
    def __init__(self, node: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class Configuration(_message.Message):
    __slots__ = ("cluster", "number", "voters", "learners", "reign")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    VOTERS_FIELD_NUMBER: _ClassVar[int]
    LEARNERS_FIELD_NUMBER: _ClassVar[int]
    REIGN_FIELD_NUMBER: _ClassVar[int]
    cluster: int
    number: int
    voters: _containers.RepeatedCompositeFieldContainer[Member]
    learners: _containers.RepeatedCompositeFieldContainer[Member]
    reign: Ballot
    def __init__(self, cluster: _Optional[int] = ..., number: _Optional[int] = ..., voters: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., learners: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., reign: _Optional[_Union[Ballot, _Mapping]] = ...) -> None: ...

class Updates(_message.Message):
    __slots__ = ("ops", "key_lengths", "body_lengths", "keys", "bodies")
    OPS_FIELD_NUMBER: _ClassVar[int]
    KEY_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    BODY_LENGTHS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    BODIES_FIELD_NUMBER: _ClassVar[int]
    ops: bytes
    key_lengths: bytes
    body_lengths: bytes
    keys: bytes
    bodies: bytes
    def __init__(self, ops: _Optional[bytes] = ..., key_lengths: _Optional[bytes] = ..., body_lengths: _Optional[bytes] = ..., keys: _Optional[bytes] = ..., bodies: _Optional[bytes] = ...) -> None: ...

class Prepare(_message.Message):
    __slots__ = ("ballot", "decided", "handed_over")
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    DECIDED_FIELD_NUMBER: _ClassVar[int]
    HANDED_OVER_FIELD_NUMBER: _ClassVar[int]
    ballot: Ballot
    decided: int
    handed_over: Ballot
    def __init__(self, ballot: _Optional[_Union[Ballot, _Mapping]] = ..., decided: _Optional[int] = ..., handed_over: _Optional[_Union[Ballot, _Mapping]] = ...) -> None: ...

class Promise(_message.Message):
    __slots__ = ("ballot", "decided", "under", "accepted")
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    DECIDED_FIELD_NUMBER: _ClassVar[int]
    UNDER_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    ballot: Ballot
    decided: int
    under: Ballot
    accepted: _containers.RepeatedCompositeFieldContainer[Ballot]
    def __init__(self, ballot: _Optional[_Union[Ballot, _Mapping]] = ..., decided: _Optional[int] = ..., under: _Optional[_Union[Ballot, _Mapping]] = ..., accepted: _Optional[_Iterable[_Union[Ballot, _Mapping]]] = ...) -> None: ...

class Accept(_message.Message):
    __slots__ = ("ballot", "decided")
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    DECIDED_FIELD_NUMBER: _ClassVar[int]
    ballot: Ballot
    decided: int
    def __init__(self, ballot: _Optional[_Union[Ballot, _Mapping]] = ..., decided: _Optional[int] = ...) -> None: ...

class Accepted(_message.Message):
    __slots__ = ("ballot", "first", "last")
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    ballot: Ballot
    first: int
    last: int
    def __init__(self, ballot: _Optional[_Union[Ballot, _Mapping]] = ..., first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class Preempted(_message.Message):
    __slots__ = ("ballot", "promised")
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    PROMISED_FIELD_NUMBER: _ClassVar[int]
    ballot: Ballot
    promised: Ballot
    def __init__(self, ballot: _Optional[_Union[Ballot, _Mapping]] = ..., promised: _Optional[_Union[Ballot, _Mapping]] = ...) -> None: ...

class Decided(_message.Message):
    __slots__ = ("ballot", "decided")
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    DECIDED_FIELD_NUMBER: _ClassVar[int]
    ballot: Ballot
    decided: int
    def __init__(self, ballot: _Optional[_Union[Ballot, _Mapping]] = ..., decided: _Optional[int] = ...) -> None: ...

class PreVote(_message.Message):
    __slots__ = ("ballot", "decided")
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    DECIDED_FIELD_NUMBER: _ClassVar[int]
    ballot: Ballot
    decided: int
    def __init__(self, ballot: _Optional[_Union[Ballot, _Mapping]] = ..., decided: _Optional[int] = ...) -> None: ...

class PreVoted(_message.Message):
    __slots__ = ("ballot", "granted", "decided", "highest")
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    DECIDED_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_FIELD_NUMBER: _ClassVar[int]
    ballot: Ballot
    granted: bool
    decided: int
    highest: Ballot
    def __init__(self, ballot: _Optional[_Union[Ballot, _Mapping]] = ..., granted: bool = ..., decided: _Optional[int] = ..., highest: _Optional[_Union[Ballot, _Mapping]] = ...) -> None: ...

class Beat(_message.Message):
    __slots__ = ("ballot", "number", "decided")
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    DECIDED_FIELD_NUMBER: _ClassVar[int]
    ballot: Ballot
    number: int
    decided: int
    def __init__(self, ballot: _Optional[_Union[Ballot, _Mapping]] = ..., number: _Optional[int] = ..., decided: _Optional[int] = ...) -> None: ...

class BeatAck(_message.Message):
    __slots__ = ("ballot", "number", "decided")
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    DECIDED_FIELD_NUMBER: _ClassVar[int]
    ballot: Ballot
    number: int
    decided: int
    def __init__(self, ballot: _Optional[_Union[Ballot, _Mapping]] = ..., number: _Optional[int] = ..., decided: _Optional[int] = ...) -> None: ...

class Request(_message.Message):
    __slots__ = ("session", "serial", "opened", "size", "updates", "cancelled", "after")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    session: int
    serial: int
    opened: int
    size: int
    updates: Updates
    cancelled: int
    after: int
    def __init__(self, session: _Optional[int] = ..., serial: _Optional[int] = ..., opened: _Optional[int] = ..., size: _Optional[int] = ..., updates: _Optional[_Union[Updates, _Mapping]] = ..., cancelled: _Optional[int] = ..., after: _Optional[int] = ...) -> None: ...

class Forward(_message.Message):
    __slots__ = ("requests",)
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[Request]
    def __init__(self, requests: _Optional[_Iterable[_Union[Request, _Mapping]]] = ...) -> None: ...

class Expected(_message.Message):
    __slots__ = ("session", "serial")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    session: int
    serial: int
    def __init__(self, session: _Optional[int] = ..., serial: _Optional[int] = ...) -> None: ...

class AskIndex(_message.Message):
    __slots__ = ("token",)
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    token: int
    def __init__(self, token: _Optional[int] = ...) -> None: ...

class ReadIndex(_message.Message):
    __slots__ = ("token", "slot")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    token: int
    slot: int
    def __init__(self, token: _Optional[int] = ..., slot: _Optional[int] = ...) -> None: ...

class TakeOver(_message.Message):
    __slots__ = ("ballot",)
    BALLOT_FIELD_NUMBER: _ClassVar[int]
    ballot: Ballot
    def __init__(self, ballot: _Optional[_Union[Ballot, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("fresh", "wanted")
    FRESH_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    fresh: bool
    wanted: bool
    def __init__(self, fresh: bool = ..., wanted: bool = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("fresh", "leader")
    FRESH_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    fresh: bool
    leader: Member
    def __init__(self, fresh: bool = ..., leader: _Optional[_Union[Member, _Mapping]] = ...) -> None: ...

class Found(_message.Message):
    __slots__ = ("configuration",)
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    configuration: Configuration
    def __init__(self, configuration: _Optional[_Union[Configuration, _Mapping]] = ...) -> None: ...

class Edition(_message.Message):
    __slots__ = ("era", "floor")
    ERA_FIELD_NUMBER: _ClassVar[int]
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    era: int
    floor: int
    def __init__(self, era: _Optional[int] = ..., floor: _Optional[int] = ...) -> None: ...

class Standing(_message.Message):
    __slots__ = ("tip", "whole", "edition", "path")
    TIP_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    EDITION_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    tip: int
    whole: int
    edition: Edition
    path: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, tip: _Optional[int] = ..., whole: _Optional[int] = ..., edition: _Optional[_Union[Edition, _Mapping]] = ..., path: _Optional[_Iterable[int]] = ...) -> None: ...

class Pull(_message.Message):
    __slots__ = ("request", "first", "last", "bytes_max", "era")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    ERA_FIELD_NUMBER: _ClassVar[int]
    request: int
    first: int
    last: int
    bytes_max: int
    era: int
    def __init__(self, request: _Optional[int] = ..., first: _Optional[int] = ..., last: _Optional[int] = ..., bytes_max: _Optional[int] = ..., era: _Optional[int] = ...) -> None: ...

class Range(_message.Message):
    __slots__ = ("request", "first", "last", "standing")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    STANDING_FIELD_NUMBER: _ClassVar[int]
    request: int
    first: int
    last: int
    standing: Standing
    def __init__(self, request: _Optional[int] = ..., first: _Optional[int] = ..., last: _Optional[int] = ..., standing: _Optional[_Union[Standing, _Mapping]] = ...) -> None: ...

class Unavailable(_message.Message):
    __slots__ = ("request", "reason", "standing")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    STANDING_FIELD_NUMBER: _ClassVar[int]
    request: int
    reason: str
    standing: Standing
    def __init__(self, request: _Optional[int] = ..., reason: _Optional[str] = ..., standing: _Optional[_Union[Standing, _Mapping]] = ...) -> None: ...

class Resync(_message.Message):
    __slots__ = ("request", "standing")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    STANDING_FIELD_NUMBER: _ClassVar[int]
    request: int
    standing: Standing
    def __init__(self, request: _Optional[int] = ..., standing: _Optional[_Union[Standing, _Mapping]] = ...) -> None: ...

class Busy(_message.Message):
    __slots__ = ("request", "retry_s")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    RETRY_S_FIELD_NUMBER: _ClassVar[int]
    request: int
    retry_s: float
    def __init__(self, request: _Optional[int] = ..., retry_s: _Optional[float] = ...) -> None: ...

class PullSegments(_message.Message):
    __slots__ = ("request", "first", "era")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    ERA_FIELD_NUMBER: _ClassVar[int]
    request: int
    first: int
    era: int
    def __init__(self, request: _Optional[int] = ..., first: _Optional[int] = ..., era: _Optional[int] = ...) -> None: ...

class SegmentOffer(_message.Message):
    __slots__ = ("id", "first", "last", "bytes", "checksum", "offset")
    ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    id: int
    first: int
    last: int
    bytes: int
    checksum: int
    offset: int
    def __init__(self, id: _Optional[int] = ..., first: _Optional[int] = ..., last: _Optional[int] = ..., bytes: _Optional[int] = ..., checksum: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class Segments(_message.Message):
    __slots__ = ("request", "offers", "standing")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    OFFERS_FIELD_NUMBER: _ClassVar[int]
    STANDING_FIELD_NUMBER: _ClassVar[int]
    request: int
    offers: _containers.RepeatedCompositeFieldContainer[SegmentOffer]
    standing: Standing
    def __init__(self, request: _Optional[int] = ..., offers: _Optional[_Iterable[_Union[SegmentOffer, _Mapping]]] = ..., standing: _Optional[_Union[Standing, _Mapping]] = ...) -> None: ...

class PullFile(_message.Message):
    __slots__ = ("segment", "offset", "bytes", "position")
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    segment: int
    offset: int
    bytes: int
    position: int
    def __init__(self, segment: _Optional[int] = ..., offset: _Optional[int] = ..., bytes: _Optional[int] = ..., position: _Optional[int] = ...) -> None: ...

class Subscribe(_message.Message):
    __slots__ = ("after", "slots", "bytes")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    after: int
    slots: int
    bytes: int
    def __init__(self, after: _Optional[int] = ..., slots: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class Push(_message.Message):
    __slots__ = ("standing",)
    STANDING_FIELD_NUMBER: _ClassVar[int]
    standing: Standing
    def __init__(self, standing: _Optional[_Union[Standing, _Mapping]] = ...) -> None: ...

class Here(_message.Message):
    __slots__ = ("region", "position", "able")
    REGION_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    ABLE_FIELD_NUMBER: _ClassVar[int]
    region: str
    position: int
    able: bool
    def __init__(self, region: _Optional[str] = ..., position: _Optional[int] = ..., able: bool = ...) -> None: ...

class PublishRequest(_message.Message):
    __slots__ = ("updates", "numbers")
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    updates: Updates
    numbers: Numbers
    def __init__(self, updates: _Optional[_Union[Updates, _Mapping]] = ..., numbers: _Optional[_Union[Numbers, _Mapping]] = ...) -> None: ...

class Numbers(_message.Message):
    __slots__ = ("session", "serial", "after")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    session: int
    serial: int
    after: int
    def __init__(self, session: _Optional[int] = ..., serial: _Optional[int] = ..., after: _Optional[int] = ...) -> None: ...

class PublishReply(_message.Message):
    __slots__ = ("last", "failure")
    LAST_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    last: int
    failure: Failure
    def __init__(self, last: _Optional[int] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("kind", "reason", "outcome_unknown")
    KIND_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    kind: str
    reason: str
    outcome_unknown: bool
    def __init__(self, kind: _Optional[str] = ..., reason: _Optional[str] = ..., outcome_unknown: bool = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...

class TailRequest(_message.Message):
    __slots__ = ("first", "follow")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    first: int
    follow: bool
    def __init__(self, first: _Optional[int] = ..., follow: bool = ...) -> None: ...

class TailReply(_message.Message):
    __slots__ = ("block",)
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    block: bytes
    def __init__(self, block: _Optional[bytes] = ...) -> None: ...

class TransferLeadershipRequest(_message.Message):
    __slots__ = ("to",)
    TO_FIELD_NUMBER: _ClassVar[int]
    to: str
    def __init__(self, to: _Optional[str] = ...) -> None: ...

class TransferLeadershipReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MembersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MembersReply(_message.Message):
    __slots__ = ("configuration", "leader")
    CONFIGURATION_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    configuration: Configuration
    leader: Member
    def __init__(self, configuration: _Optional[_Union[Configuration, _Mapping]] = ..., leader: _Optional[_Union[Member, _Mapping]] = ...) -> None: ...
