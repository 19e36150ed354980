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

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: str
    def __init__(self, json: _Optional[str] = ...) -> None: ...

class Envelope(_message.Message):
    __slots__ = ("sender", "to", "blobs", "forward", "events", "notify", "request", "subscribe", "publish", "published", "gossip", "advertise", "unsubscribe", "refused", "chain_push", "chain_pull", "chain_beat", "chain_is")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    FORWARD_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    NOTIFY_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    PUBLISHED_FIELD_NUMBER: _ClassVar[int]
    GOSSIP_FIELD_NUMBER: _ClassVar[int]
    ADVERTISE_FIELD_NUMBER: _ClassVar[int]
    UNSUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    CHAIN_PUSH_FIELD_NUMBER: _ClassVar[int]
    CHAIN_PULL_FIELD_NUMBER: _ClassVar[int]
    CHAIN_BEAT_FIELD_NUMBER: _ClassVar[int]
    CHAIN_IS_FIELD_NUMBER: _ClassVar[int]
    sender: str
    to: str
    blobs: _containers.RepeatedScalarFieldContainer[bytes]
    forward: Forward
    events: Events
    notify: Notify
    request: Request
    subscribe: Subscribe
    publish: Publish
    published: Published
    gossip: Gossip
    advertise: Advertise
    unsubscribe: Unsubscribe
    refused: Refused
    chain_push: ChainPush
    chain_pull: ChainPull
    chain_beat: ChainBeat
    chain_is: ChainIs
    def __init__(self, sender: _Optional[str] = ..., to: _Optional[str] = ..., blobs: _Optional[_Iterable[bytes]] = ..., forward: _Optional[_Union[Forward, _Mapping]] = ..., events: _Optional[_Union[Events, _Mapping]] = ..., notify: _Optional[_Union[Notify, _Mapping]] = ..., request: _Optional[_Union[Request, _Mapping]] = ..., subscribe: _Optional[_Union[Subscribe, _Mapping]] = ..., publish: _Optional[_Union[Publish, _Mapping]] = ..., published: _Optional[_Union[Published, _Mapping]] = ..., gossip: _Optional[_Union[Gossip, _Mapping]] = ..., advertise: _Optional[_Union[Advertise, _Mapping]] = ..., unsubscribe: _Optional[_Union[Unsubscribe, _Mapping]] = ..., refused: _Optional[_Union[Refused, _Mapping]] = ..., chain_push: _Optional[_Union[ChainPush, _Mapping]] = ..., chain_pull: _Optional[_Union[ChainPull, _Mapping]] = ..., chain_beat: _Optional[_Union[ChainBeat, _Mapping]] = ..., chain_is: _Optional[_Union[ChainIs, _Mapping]] = ...) -> None: ...

class Count(_message.Message):
    __slots__ = ("stream", "seq")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    stream: str
    seq: int
    def __init__(self, stream: _Optional[str] = ..., seq: _Optional[int] = ...) -> None: ...

class Epoch(_message.Message):
    __slots__ = ("life", "number")
    LIFE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    life: int
    number: int
    def __init__(self, life: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class Advertise(_message.Message):
    __slots__ = ("counts",)
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    counts: _containers.RepeatedCompositeFieldContainer[Count]
    def __init__(self, counts: _Optional[_Iterable[_Union[Count, _Mapping]]] = ...) -> None: ...

class Subscribe(_message.Message):
    __slots__ = ("stream", "after", "epoch")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    stream: str
    after: int
    epoch: Epoch
    def __init__(self, stream: _Optional[str] = ..., after: _Optional[int] = ..., epoch: _Optional[_Union[Epoch, _Mapping]] = ...) -> None: ...

class Unsubscribe(_message.Message):
    __slots__ = ("stream", "epoch")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    stream: str
    epoch: Epoch
    def __init__(self, stream: _Optional[str] = ..., epoch: _Optional[_Union[Epoch, _Mapping]] = ...) -> None: ...

class Forward(_message.Message):
    __slots__ = ("stream",)
    STREAM_FIELD_NUMBER: _ClassVar[int]
    stream: str
    def __init__(self, stream: _Optional[str] = ...) -> None: ...

class Gossip(_message.Message):
    __slots__ = ("view", "wants_answer", "gone")
    VIEW_FIELD_NUMBER: _ClassVar[int]
    WANTS_ANSWER_FIELD_NUMBER: _ClassVar[int]
    GONE_FIELD_NUMBER: _ClassVar[int]
    view: _containers.RepeatedScalarFieldContainer[str]
    wants_answer: bool
    gone: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, view: _Optional[_Iterable[str]] = ..., wants_answer: bool = ..., gone: _Optional[_Iterable[str]] = ...) -> None: ...

class Notify(_message.Message):
    __slots__ = ("counts",)
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    counts: _containers.RepeatedCompositeFieldContainer[Count]
    def __init__(self, counts: _Optional[_Iterable[_Union[Count, _Mapping]]] = ...) -> None: ...

class Request(_message.Message):
    __slots__ = ("stream", "first", "last", "number")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    stream: str
    first: int
    last: int
    number: int
    def __init__(self, stream: _Optional[str] = ..., first: _Optional[int] = ..., last: _Optional[int] = ..., number: _Optional[int] = ...) -> None: ...

class Events(_message.Message):
    __slots__ = ("stream", "number", "position")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    stream: str
    number: int
    position: int
    def __init__(self, stream: _Optional[str] = ..., number: _Optional[int] = ..., position: _Optional[int] = ...) -> None: ...

class Publish(_message.Message):
    __slots__ = ("stream", "publisher", "serial")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    PUBLISHER_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    stream: str
    publisher: int
    serial: int
    def __init__(self, stream: _Optional[str] = ..., publisher: _Optional[int] = ..., serial: _Optional[int] = ...) -> None: ...

class Published(_message.Message):
    __slots__ = ("stream", "publisher", "serial", "first", "last")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    PUBLISHER_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    stream: str
    publisher: int
    serial: int
    first: int
    last: int
    def __init__(self, stream: _Optional[str] = ..., publisher: _Optional[int] = ..., serial: _Optional[int] = ..., first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class Refused(_message.Message):
    __slots__ = ("stream", "publisher", "serial", "reason", "again")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    PUBLISHER_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    stream: str
    publisher: int
    serial: int
    reason: str
    again: bool
    def __init__(self, stream: _Optional[str] = ..., publisher: _Optional[int] = ..., serial: _Optional[int] = ..., reason: _Optional[str] = ..., again: bool = ...) -> None: ...

class Mark(_message.Message):
    __slots__ = ("publisher", "serial", "first", "last")
    PUBLISHER_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    publisher: int
    serial: int
    first: int
    last: int
    def __init__(self, publisher: _Optional[int] = ..., serial: _Optional[int] = ..., first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class ChainPush(_message.Message):
    __slots__ = ("number", "stream", "counted", "marks")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    COUNTED_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    number: int
    stream: str
    counted: int
    marks: _containers.RepeatedCompositeFieldContainer[Mark]
    def __init__(self, number: _Optional[int] = ..., stream: _Optional[str] = ..., counted: _Optional[int] = ..., marks: _Optional[_Iterable[_Union[Mark, _Mapping]]] = ...) -> None: ...

class ChainPull(_message.Message):
    __slots__ = ("number", "ends", "counts")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    number: int
    ends: _containers.RepeatedCompositeFieldContainer[Count]
    counts: _containers.RepeatedCompositeFieldContainer[Count]
    def __init__(self, number: _Optional[int] = ..., ends: _Optional[_Iterable[_Union[Count, _Mapping]]] = ..., counts: _Optional[_Iterable[_Union[Count, _Mapping]]] = ...) -> None: ...

class ChainBeat(_message.Message):
    __slots__ = ("number", "clients")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    number: int
    clients: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, number: _Optional[int] = ..., clients: _Optional[_Iterable[str]] = ...) -> None: ...

class ChainIs(_message.Message):
    __slots__ = ("proxy", "number", "replicas")
    PROXY_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    proxy: str
    number: int
    replicas: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, proxy: _Optional[str] = ..., number: _Optional[int] = ..., replicas: _Optional[_Iterable[str]] = ...) -> None: ...
