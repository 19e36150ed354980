"""What an application touches, on real ports: publishing, subscribing, going on, being told what is wrong."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import grpc
import pytest

import sirius.broadcast
from sirius.broadcast import Broadcast, LocalProxy, Received, Subscription, connect
from sirius.broadcast.config import ClientConfig, ProxyConfig
from sirius.broadcast.events import EventBatch, Kind
from sirius.broadcast.limits import Limits
from sirius.broadcast.live.publishing import Room
from sirius.broadcast.live.settings import told
from sirius.broadcast.predicates import PredicateError
from sirius.errors import (
    NodeClosed,
    OutcomeUnknown,
    Overloaded,
    RequestRejected,
    Unreachable,
    UsageError,
)
from sirius.testing.processes import free_ports

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def proxy() -> Iterator[LocalProxy]:
    with LocalProxy(["films", "prices", "films-old"]) as proxy:
        yield proxy


@pytest.fixture
def broadcast(proxy: LocalProxy) -> Iterator[Broadcast]:
    with connect(proxy.address) as broadcast:
        yield broadcast


def taken(subscription: Subscription, count: int) -> list[Received]:
    found = [subscription.get(PATIENCE_S) for _ in range(count)]
    assert None not in found
    return [event for event in found if event is not None]


def some(prefix: str, count: int) -> list[bytes]:
    return [f"{prefix}/{number:05}".encode() for number in range(count)]


# ---------------------------------------------------------------------- publishing


def test_an_event_comes_as_it_was_published(broadcast: Broadcast) -> None:
    with broadcast.subscribe("films") as films:
        receipt = broadcast.publish(
            "films", "title/casablanca", b"1942", topic="/noir", attributes={"stars": 5}
        )
        (event,) = taken(films, 1)
    assert event[:2] == ("films", receipt.result(PATIENCE_S))
    assert event.kind == Kind.KEYED
    assert event[3:6] == ("/noir", b"title/casablanca", b"1942")
    assert event.attributes == {"stars": 5}


def test_events_of_many_kinds_share_a_batch(broadcast: Broadcast) -> None:
    with broadcast.subscribe("films") as films:
        broadcast.publish("films", b"a", keyed=False, topic="/x", attributes={"n": 1})
        broadcast.publish("films", b"b", b"body", topic="/y", attributes={"m": 2})
        broadcast.publish("films", b"c")
        found = taken(films, 3)
    assert [event.kind for event in found] == [Kind.DATA, Kind.KEYED, Kind.KEYED]
    assert [event.topic for event in found] == ["/x", "/y", ""]
    assert [event.payload for event in found] == [b"", b"body", b""]
    assert [event.attributes for event in found] == [{"n": 1}, {"m": 2}, {}]


def test_receipts_are_the_sequence_numbers_in_the_order_of_the_calls(broadcast: Broadcast) -> None:
    receipts = [broadcast.publish("films", key) for key in some("order", 1000)]
    seqs = [receipt.result(PATIENCE_S) for receipt in receipts]
    assert seqs == sorted(set(seqs))
    assert all(receipt.done() and receipt.exception() is None for receipt in receipts)


def test_single_events_are_gathered_into_batches(broadcast: Broadcast) -> None:
    receipts = [broadcast.publish("films", key) for key in some("gather", 5000)]
    broadcast.flush(PATIENCE_S)
    batches = {id(receipt.batch) for receipt in receipts}
    assert len(batches) < 500


def test_many_keys_stand_next_to_each_other(broadcast: Broadcast) -> None:
    keys = some("many", 1000)
    with broadcast.subscribe("films") as films:
        span = broadcast.publish_many("films", keys, [b"%d" % at for at in range(1000)])
        found = taken(films, 1000)
    first, last = span.result(PATIENCE_S)
    assert last - first == 999
    assert [event.key for event in found] == keys
    assert found[7].payload == b"7"


def test_keys_of_one_width_may_come_end_to_end(broadcast: Broadcast) -> None:
    with broadcast.subscribe("prices") as prices:
        broadcast.publish_many("prices", b"".join(some("w", 100)), width=7)
        assert [event.key for event in taken(prices, 100)] == some("w", 100)


def test_singles_and_batches_of_a_thread_keep_their_order(broadcast: Broadcast) -> None:
    with broadcast.subscribe("films") as films:
        for at in range(0, 300, 3):
            broadcast.publish("films", f"{at}")
            broadcast.publish_many("films", [f"{at + 1}", f"{at + 2}"])
        assert [int(event.key) for event in taken(films, 300)] == list(range(300))


def test_many_threads_publish_at_the_same_time(broadcast: Broadcast) -> None:
    def work(thread: int) -> None:
        for at in range(500):
            broadcast.publish("films", f"{thread}/{at:04}", keyed=False)

    with broadcast.subscribe("films") as films:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        keys = [event.key.decode() for event in taken(films, 4000)]
    assert len(set(keys)) == 4000
    for thread in range(8):
        mine = [key for key in keys if key.startswith(f"{thread}/")]
        assert mine == sorted(mine)


def test_a_collected_event_is_a_hole_to_whoever_comes_later() -> None:
    # What is new is passed on as it came; this proxy keeps next to nothing of that.
    forgetful = ProxyConfig(recent_bytes_max=1)
    with LocalProxy(["old"], proxy=forgetful) as proxy, connect(proxy.address) as broadcast:
        first = broadcast.publish("old", "a", topic="/old/x").result(PATIENCE_S)
        broadcast.publish("old", "b", topic="/new").result(PATIENCE_S)
        broadcast.collect("old", 'topic = "/old/*"').result(PATIENCE_S)
        broadcast.publish("old", "b", topic="/new").result(PATIENCE_S)
        with broadcast.subscribe("old", from_seq=first) as late:
            found = taken(late, 2)
    assert [(event.kind, event.key) for event in found] == [(Kind.GC, b""), (Kind.KEYED, b"b")]


# ---------------------------------------------------------------------- subscribing


def test_a_subscription_goes_on_where_the_last_one_was(broadcast: Broadcast) -> None:
    with broadcast.subscribe("films") as films:
        broadcast.publish_many("films", some("resume", 10))
        taken(films, 4)
        position = films.position
    with broadcast.subscribe("films", from_seq=position + 1) as films:
        assert [event.key for event in taken(films, 6)] == some("resume", 10)[4:]


def test_a_pattern_stands_for_all_streams_that_it_fits(broadcast: Broadcast) -> None:
    with broadcast.subscribe("films*") as both:
        assert set(both.positions) == {"films", "films-old"}
        broadcast.publish("films", "here")
        broadcast.publish("films-old", "there")
        broadcast.publish("prices", "nowhere")
        found = {(event.stream, event.key) for event in taken(both, 2)}
    assert found == {("films", b"here"), ("films-old", b"there")}


def test_events_of_other_topics_are_left_out(broadcast: Broadcast) -> None:
    with broadcast.subscribe("films", topic="/noir/*") as noir:
        topics = ["/noir/us", "/comedy", "/noir/fr", "/comedy"]
        payloads = [b"1", b"", b"333", b"4"]
        span = broadcast.publish_many("films", ["a", "bb", "ccc", "d"], payloads, topic=topics)
        found = taken(noir, 2)
        assert [(event.key, event.payload) for event in found] == [(b"a", b"1"), (b"ccc", b"333")]
        broadcast.publish("films", "z", topic="/noir/it")
        taken(noir, 1)
        assert noir.position > span.result(PATIENCE_S).last


def test_batches_are_columns(broadcast: Broadcast) -> None:
    with broadcast.subscribe("prices") as prices:
        broadcast.publish_many("prices", b"0123456789" * 1000, width=10, keyed=False)
        count = 0
        while count < 1000:
            delivery = prices.next_batch(PATIENCE_S)
            assert delivery is not None
            count += len(delivery.batch)
            assert delivery.batch.keys[:10] == b"0123456789"


def test_a_callback_is_called_with_each_event(broadcast: Broadcast) -> None:
    found: list[bytes] = []
    done = threading.Event()

    def on_event(event: Received) -> None:
        found.append(event.key)
        if len(found) == 100:
            done.set()

    with broadcast.subscribe("films", on_event=on_event):
        broadcast.publish_many("films", some("call", 100))
        assert done.wait(PATIENCE_S)
    assert found == some("call", 100)


def test_a_callback_that_fails_ends_its_subscription_alone(broadcast: Broadcast) -> None:
    def on_batch(_stream: str, _batch: EventBatch) -> None:
        raise ValueError("a bug of the application")

    with broadcast.subscribe("films") as other:
        failing = broadcast.subscribe("films", on_batch=on_batch)
        broadcast.publish("films", "x")
        assert taken(other, 1)[0].key == b"x"
        until(lambda: failing.closed)
    assert isinstance(failing.error, ValueError)


def until(condition: Callable[[], object]) -> None:
    for _ in range(int(PATIENCE_S * 1000)):
        if condition():
            return
        threading.Event().wait(0.001)
    raise AssertionError("it did not come to that")


def test_an_event_loop_iterates_and_awaits(broadcast: Broadcast) -> None:
    async def main() -> list[bytes]:
        keys: list[bytes] = []
        with broadcast.subscribe("films") as films:
            for key in some("async", 10):
                await broadcast.apublish("films", key)
            await broadcast.apublish_many("films", [b"many"])
            async for event in films:
                keys.append(event.key)
                if len(keys) == 11:
                    return keys
        return keys

    assert asyncio.run(main()) == [*some("async", 10), b"many"]


def test_an_event_loop_is_not_blocked_by_a_lack_of_room(proxy: LocalProxy) -> None:
    async def main() -> list[int]:
        with connect(proxy.address, room=Room(events_max=2)) as broadcast:
            events = [broadcast.apublish("films", key) for key in some("room", 50)]
            return list(await asyncio.gather(*events))

    assert len(set(asyncio.run(main()))) == 50


def test_an_event_loop_is_woken_by_what_comes_later(broadcast: Broadcast) -> None:
    async def main() -> Received | None:
        with broadcast.subscribe("films") as films:
            waiting = asyncio.create_task(films.aget())
            await asyncio.sleep(0)
            broadcast.publish("films", "late")
            return await asyncio.wait_for(waiting, PATIENCE_S)

    event = asyncio.run(main())
    assert event is not None
    assert event.key == b"late"


def test_nothing_piles_up_for_who_does_not_keep_up(proxy: LocalProxy) -> None:
    bound = 64 << 10
    config = ClientConfig(backlog_bytes_max=bound, request_events_max=64, recent_bytes_max=bound)
    with connect(proxy.address, client=config) as broadcast, broadcast.subscribe("films") as slow:
        with broadcast.subscribe("films") as quick:
            body = b"x" * 1000
            for _ in range(20):
                # One after the other: those that wait would travel as one, and a batch comes as a whole.
                span = broadcast.publish_many("films", some("pile", 100), [body] * 100)
                span.result(PATIENCE_S)
            assert len(taken(quick, 2000)) == 2000
            waiting = sum(delivery.batch.nbytes for delivery in slow._waiting)
            assert waiting < 10 * bound
        assert len(taken(slow, 2000)) == 2000


def test_closing_ends_whoever_iterates(broadcast: Broadcast) -> None:
    films = broadcast.subscribe("films")
    found: list[Received] = []
    reader = threading.Thread(target=lambda: found.extend(films))
    reader.start()
    films.close()
    films.close()
    reader.join(PATIENCE_S)
    assert not reader.is_alive()
    assert films.closed


def test_a_closed_subscription_leaves_the_region(broadcast: Broadcast) -> None:
    films = broadcast.subscribe("films")
    films.close()
    until(lambda: not broadcast._subscriptions)


# ---------------------------------------------------------------------- what goes wrong


def test_a_stream_that_is_not_there_is_named_with_those_that_are(broadcast: Broadcast) -> None:
    for call in (broadcast.subscribe, broadcast.invalidations, lambda s: broadcast.publish(s, "k")):
        with pytest.raises(UsageError, match=r"no stream 'filmz': there are films, prices"):
            call("filmz")


def test_a_predicate_that_cannot_be_read_is_pointed_at(broadcast: Broadcast) -> None:
    with pytest.raises(PredicateError, match=r"seq > 3\n      \^"):
        broadcast.collect("films", "seq > 3")
    with pytest.raises(PredicateError, match=r'key = "a·"\n          \^'):
        broadcast.collect("films", 'key = "a\udcff"')


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"key": b"k" * 5000}, "a key of 5,000 bytes is longer than 4,096"),
        ({"key": "k", "payload": bytes(2 << 20)}, "a payload of 2,097,152 bytes is longer"),
        ({"key": "k", "topic": "noir"}, "'noir' is no topic"),
        ({"key": "k", "attributes": {"Stars": 1}}, "'Stars' is no name for an attribute"),
        ({"key": "k", "attributes": {"stars": 1 << 63}}, "stars is a whole number of 64 bits"),
        ({"key": "k", "attributes": {7: 1}}, "7 is no name for an attribute"),
        ({"key": 7}, "a key is text or bytes, not 7"),
        ({"key": "\udcff"}, r"'\\udcff' cannot be written as UTF-8: pass bytes"),
        ({"key": "k", "payload": "\udcff"}, "cannot be written as UTF-8"),
        ({"key": "k", "topic": "/\udcff"}, "is no topic: it cannot be written as UTF-8"),
        ({"key": "k", "topic": 7}, "a topic is text, not 7"),
    ],
)
def test_an_event_that_is_none_is_refused_at_once(
    broadcast: Broadcast, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        broadcast.publish("films", **arguments)  # type: ignore[arg-type]
    assert broadcast.publish("films", "fine").result(PATIENCE_S)


@pytest.mark.parametrize(
    ("keys", "options", "message"),
    [
        ([], {}, "nothing to publish"),
        ("key", {}, "a key alone is for publish"),
        ([b"k" * 5000], {}, "a key of 5000 bytes is longer than 4096"),
        (b"12345", {"width": 2}, "5 bytes are not keys of 2 bytes each"),
        (["a", "b"], {"payloads": [b"x"]}, "1 payloads for 2 keys"),
        (["a", "b"], {"topic": ["/x"]}, "1 topics for 2 keys"),
        (["a", "b"], {"topic": []}, "0 topics for 2 keys"),
        (["a", "b"], {"attributes": {"n": [1]}}, "1 values of n for 2 keys"),
        (["a", "b"], {"attributes": {"n": []}}, "0 values of n for 2 keys"),
        (["a"], {"attributes": {"n": [1 << 63]}}, "attribute n has values that are no whole"),
        (["a"], {"attributes": {"n": [1 << 70]}}, "attribute n has values that are no whole"),
        (["a"], {"attributes": {"n": [1.5]}}, "attribute n has values that are no whole numbers"),
        (["a"], {"attributes": {"n": ["x"]}}, "attribute n has values that are no whole numbers"),
        (["a"], {"attributes": {"n": [None]}}, "attribute n has values that are no whole numbers"),
        (["a"], {"attributes": {7: [1]}}, "7 is no name for an attribute"),
        (["a"], {"topic": [None]}, "a topic is text, not None"),
        (["a"], {"topic": ["/\udcff"]}, "cannot be written as UTF-8"),
        (["k"] * 65_537, {"topic": [f"/{at}" for at in range(65_537)]}, "65537 topics are more"),
        (None, {}, "keys is a list of keys"),
        (iter(["a"]), {}, "keys is a list of keys"),
        (b"12345", {"width": 0}, "a width is 1 or more, not 0"),
    ],
)
def test_a_batch_that_is_none_is_refused_at_once(
    broadcast: Broadcast, keys: list[bytes], options: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        broadcast.publish_many("films", keys, **options)  # type: ignore[arg-type]


def test_a_position_that_is_none_is_refused(broadcast: Broadcast) -> None:
    with pytest.raises(UsageError, match="from_seq is 1 or more, not 0"):
        broadcast.subscribe("films", from_seq=0)
    with pytest.raises(UsageError, match="from_seq = 9223372036854775808 is above every"):
        broadcast.subscribe("films", from_seq=1 << 63)
    with pytest.raises(UsageError, match="from_seq is a number, or one for each stream, not '1'"):
        broadcast.subscribe("films", from_seq="1")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="from_seq is 1 or more, not 'x'"):
        broadcast.subscribe("films", from_seq={"films": "x"})  # type: ignore[dict-item]
    with pytest.raises(UsageError, match="from_seq says nothing of films-old"):
        broadcast.subscribe("films*", from_seq={"films": 1})
    with pytest.raises(UsageError, match="on_event and on_batch"):
        broadcast.subscribe("films", on_event=print, on_batch=print)


@pytest.mark.parametrize("pattern", ["noir", "noir/*", "*/noir", "/no*", "/noir/**"])
def test_a_pattern_that_no_topic_can_fit_is_refused(broadcast: Broadcast, pattern: str) -> None:
    with pytest.raises(UsageError, match="fits no topic"):
        broadcast.subscribe("films", topic=pattern)


@pytest.mark.parametrize("pattern", ["", "*", "/noir", "/*", "/*/us"])
def test_any_other_pattern_is_one(broadcast: Broadcast, pattern: str) -> None:
    broadcast.subscribe("films", topic=pattern).close()


def test_whoever_waits_and_gives_up_leaves_nothing_behind(broadcast: Broadcast) -> None:
    async def main(films: Subscription) -> None:
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(films.aget(), 0.001)

    with broadcast.subscribe("films-old") as quiet:
        asyncio.run(main(quiet))
        assert quiet._waiters == []


def test_attributes_are_those_of_the_call(broadcast: Broadcast) -> None:
    with broadcast.subscribe("films") as films:
        attributes = {"n": 0}
        for at in range(100):
            attributes["n"] = at
            broadcast.publish("films", f"{at}", attributes=attributes)
        assert [event.attributes["n"] for event in taken(films, 100)] == list(range(100))


def test_waiting_has_an_end(broadcast: Broadcast) -> None:
    with broadcast.subscribe("films") as films, pytest.raises(TimeoutError):
        films.get(timeout=0.01)


def test_nobody_at_the_address_is_said_in_time() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(Unreachable, match=address):
        connect(address, timeout_s=0.2)


def test_a_client_is_no_proxy(broadcast: Broadcast) -> None:
    with pytest.raises(UsageError, match="is no proxy"):
        connect(broadcast.address)


def test_a_node_of_a_cluster_is_no_proxy() -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        with pytest.raises(Unreachable, match=f"{address} is no proxy: a node of a cluster"):
            connect([address, address], timeout_s=PATIENCE_S)
    finally:
        server.stop(None).wait()


def test_without_tls_nobody_beyond_this_machine_is_talked_to() -> None:
    with pytest.raises(UsageError, match=r"without TLS .* not 192\.0\.2\.1:7500"):
        connect("192.0.2.1:7500")
    with pytest.raises(UsageError, match="without TLS"):
        LocalProxy(["films"], listen="0.0.0.0:0")


def test_a_publisher_without_an_owner_waits_and_is_told() -> None:
    proxy = LocalProxy(["films"])
    room = Room(events_max=10, timeout_s=0.05)
    broadcast = connect(proxy.address, room=room)
    proxy.close()
    receipts = [broadcast.publish("films", f"{at}") for at in range(10)]
    with pytest.raises(TimeoutError):
        receipts[0].result(0.01)
    with pytest.raises(Overloaded, match="10 events wait to be published"):
        broadcast.publish("films", "one more")
    with pytest.raises(TimeoutError):
        broadcast.flush(0.01)
    broadcast.close(timeout=0.01)
    errors = {type(receipt.exception(PATIENCE_S)) for receipt in receipts}
    assert errors <= {OutcomeUnknown, NodeClosed}
    assert OutcomeUnknown in errors


def test_after_the_end_everything_says_so(proxy: LocalProxy) -> None:
    broadcast = connect(proxy.address)
    films = broadcast.subscribe("films")
    receipt = broadcast.publish("films", "last")
    broadcast.close()
    broadcast.close()
    assert isinstance(receipt.result(PATIENCE_S), int)
    assert films.get() is None
    with pytest.raises(NodeClosed):
        broadcast.publish("films", "later")
    with pytest.raises(NodeClosed):
        broadcast.subscribe("films", from_seq=1)


def test_a_restarted_proxy_that_lost_its_history_says_so() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with LocalProxy(["films"], name=address):
        broadcast = connect(address)
        films = broadcast.subscribe("films")
        span = broadcast.publish_many("films", some("lost", 100)).result(PATIENCE_S)
        taken(films, 100)
    with broadcast, LocalProxy(["films"], name=address):
        fresh = broadcast.publish("films", "fresh").result(2 * PATIENCE_S)
        word, event = taken(films, 2)
    assert word.kind == Kind.GC
    assert word.payload == b"seq < %d" % word.seq
    assert span.last < word.seq < fresh
    assert (event.seq, event.key) == (fresh, b"fresh")


def test_a_client_that_cannot_be_reached_is_told_so(
    proxy: LocalProxy, caplog: pytest.LogCaptureFixture
) -> None:
    unreachable = f"127.0.0.1:{free_ports(1)[0]}"
    with (
        connect(proxy.address, listen="127.0.0.1:0", name=unreachable, silence_s=0.2) as broadcast,
        broadcast.subscribe("films"),
    ):
        until(lambda: f"can it reach {unreachable}?" in caplog.text)


def test_a_client_that_is_reached_is_not_bothered(caplog: pytest.LogCaptureFixture) -> None:
    """Its watch goes by messages and not by the clock: whoever turns it gives it no time at all."""
    hub = SimpleNamespace(received=0, address="me:1")
    settings = SimpleNamespace(silence_s=0.0)
    session = SimpleNamespace(_settings=settings, _subscriptions={"films": "me:1/1"}, _proxy="p:1")

    async def turn(times: int, messages: int) -> None:
        for _ in range(times):
            hub.received += messages
            await asyncio.sleep(0)

    async def main() -> None:
        watching = asyncio.create_task(Broadcast._watch(session, hub))  # type: ignore[arg-type]
        await turn(1, messages=0)
        await turn(10, messages=1)
        assert "can it reach" not in caplog.text
        await turn(1, messages=0)
        assert "can it reach me:1?" in caplog.text
        watching.cancel()

    asyncio.run(main())


def test_the_promised_names_are_loaded_when_they_are_used() -> None:
    code = (
        "import sys, sirius.broadcast as b; "
        "assert not {'grpc', 'numpy'} & set(sys.modules); "
        "print(*sorted(b.__all__)); [getattr(b, name) for name in b.__all__]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        "Broadcast",
        "LocalProxy",
        "Receipt",
        "Received",
        "Span",
        "Subscription",
        "connect",
    ]
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        sirius.broadcast.nonsense  # noqa: B018


def test_settings_of_another_version_are_left_aside() -> None:
    assert told(Limits, {"key_bytes_max": 7, "moons": 2}).key_bytes_max == 7


# ---------------------------------------------------------------------- what travels together


def test_events_that_are_too_many_for_a_batch_travel_in_several() -> None:
    for limits in (Limits(events_max=10), Limits(batch_bytes_max=700), Limits(topics_max=3)):
        proxy = LocalProxy(["films"], proxy=ProxyConfig(limits=limits))
        with proxy, connect(proxy.address) as broadcast:
            receipts = [
                broadcast.publish("films", f"{at:03}", b"x" * 50, topic=f"/{at}")
                for at in range(200)
            ]
            seqs = [receipt.result(PATIENCE_S) for receipt in receipts]
            assert seqs == list(range(seqs[0], seqs[0] + 200))
            assert broadcast.status()["bad_messages"] == 0


def test_an_event_that_no_batch_has_room_for_is_refused_at_once() -> None:
    limits = Limits(batch_bytes_max=700)
    with (
        LocalProxy(["films"], proxy=ProxyConfig(limits=limits)) as proxy,
        connect(proxy.address) as broadcast,
        pytest.raises(UsageError, match="an event of 801 bytes is larger than 700"),
    ):
        broadcast.publish("films", "k", b"x" * 800)


def test_whoever_brings_an_attribute_too_many_is_refused_alone() -> None:
    with LocalProxy(["films"]) as proxy, connect(proxy.address) as broadcast:
        for at in range(16):
            broadcast.publish("films", f"{at}", attributes={f"a{at}": 1}).result(PATIENCE_S)
        fine = [broadcast.publish("films", f"x{at}", attributes={"a3": at}) for at in range(50)]
        wrong = broadcast.publish("films", "one too many", attributes={"a16": 1})
        many = broadcast.publish_many("films", ["m"], attributes={"a17": [1]})
        fine += [broadcast.publish("films", f"y{at}") for at in range(50)]
        seqs = [receipt.result(PATIENCE_S) for receipt in fine]
        assert seqs == list(range(seqs[0], seqs[0] + 100))
        for refused in (wrong.batch, many):
            with pytest.raises(RequestRejected, match="at most 16 attributes"):
                refused.result(PATIENCE_S)


def test_many_attributes_do_not_meet_in_one_batch() -> None:
    with LocalProxy(["films"]) as proxy, connect(proxy.address) as broadcast:
        receipts = [broadcast.publish("films", "k", attributes={f"a{at}": at}) for at in range(100)]
        # The stream has room for sixteen at a time; more than that wait for nobody.
        outcomes = [receipt.exception(PATIENCE_S) for receipt in receipts]
        assert outcomes[:16] == [None] * 16
        assert {type(each) for each in outcomes} <= {type(None), RequestRejected}
        assert broadcast.status()["bad_messages"] == 0


def test_batches_that_wait_travel_together_and_each_knows_where_it_is(proxy: LocalProxy) -> None:
    keys = [some(f"join/{at}", 1 + at % 7) for at in range(100)]
    with connect(proxy.address) as broadcast, broadcast.subscribe("films") as films:
        go_on = threading.Event()
        broadcast._background.soon(go_on.wait, PATIENCE_S)
        spans = [
            broadcast.publish_many("films", each, [b"x"] * (at % 2) * len(each), topic=f"/{at % 3}")
            for at, each in enumerate(keys)
        ]
        single = broadcast.publish("films", "single", attributes={"n": 1})
        go_on.set()
        delivery = films.next_batch(PATIENCE_S)
    assert delivery is not None
    found = delivery.batch.events()
    assert [event.key for event in found] == [*(key for each in keys for key in each), b"single"]
    at = 0
    for number, (each, span) in enumerate(zip(keys, spans, strict=True)):
        mine = found[at : at + len(each)]
        assert span.result(PATIENCE_S) == (mine[0].seq, mine[-1].seq)
        assert {event.topic for event in mine} == {f"/{number % 3}"}
        assert {event.payload for event in mine} == {b"x" * (number % 2)}
        at += len(each)
    assert single.result(PATIENCE_S) == found[-1].seq
    assert [event.attributes for event in found] == [{}] * (len(found) - 1) + [{"n": 1}]


def test_a_gc_event_makes_room_for_what_was_published_before_it() -> None:
    full = ProxyConfig(history_bytes_max=20_000)
    room = Room(events_max=3)
    with (
        LocalProxy(["films"], proxy=full) as proxy,
        connect(proxy.address, room=room) as broadcast,
    ):
        body = b"x" * 10_000
        for _ in range(2):
            last = broadcast.publish("films", "key", body, keyed=False).result(PATIENCE_S)
        waiting = [broadcast.publish("films", f"{at}", body, keyed=False) for at in range(3)]
        with pytest.raises(Overloaded):
            broadcast.publish("films", "one more", timeout=0)
        until(lambda: broadcast._publishing._under_way)
        collected = broadcast.collect("films", f"seq <= {last}")
        broadcast.flush(PATIENCE_S)
        assert collected.result() == last + 1
        assert [receipt.result() for receipt in waiting] == [last + 2, last + 3, last + 4]
