"""Pika, unmodified, against a broker over a real local kernel."""

from __future__ import annotations

import time
from collections.abc import Callable

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

from tests.adapters.amqp.broker import Broker

pytestmark = pytest.mark.interop


def _drain(channel: BlockingChannel, queue: str, count: int, within_s: float = 10) -> list[bytes]:
    """`count` bodies from a queue, acknowledged."""
    bodies: list[bytes] = []
    ends = time.monotonic() + within_s
    while len(bodies) < count and time.monotonic() < ends:
        method, _, body = channel.basic_get(queue)
        if method is None:
            time.sleep(0.01)
            continue
        channel.basic_ack(method.delivery_tag)
        bodies.append(body)
    return bodies


def test_publish_confirm_consume_ack(channel: BlockingChannel) -> None:
    channel.queue_declare("orders", durable=True)
    channel.confirm_delivery()
    for number in range(50):
        channel.basic_publish(
            "", "orders", b"%d" % number, pika.BasicProperties(delivery_mode=2), mandatory=True
        )
    channel.basic_qos(prefetch_count=10)
    seen: list[bytes] = []
    for method, _, body in channel.consume("orders", inactivity_timeout=10):
        assert method is not None
        seen.append(body)
        channel.basic_ack(method.delivery_tag)
        if len(seen) == 50:
            break
    channel.cancel()
    assert seen == [b"%d" % number for number in range(50)]
    assert channel.queue_declare("orders", passive=True).method.message_count == 0


def test_all_properties_and_header_types_come_back(channel: BlockingChannel) -> None:
    import datetime
    import decimal

    channel.queue_declare("q", durable=True)
    sent = pika.BasicProperties(
        content_type="text/plain",
        content_encoding="gzip",
        headers={
            "text": "ü",
            "number": 5,
            "large": 2**40,
            "negative": -7,
            "yes": True,
            "nothing": None,
            "bytes": b"\xff\x00",
            "list": [1, "a", {"k": False}],
            "table": {"n": {"m": 1}},
            "price": decimal.Decimal("12.34"),
            "when": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
        },
        delivery_mode=2,
        priority=7,
        correlation_id="corr",
        reply_to="answers",
        expiration="60000",
        message_id="id-1",
        timestamp=1_700_000_000,
        type="kind",
        user_id="guest",
        app_id="app",
        cluster_id="c",
    )
    channel.basic_publish("", "q", b"x", sent)
    _, received, _ = channel.basic_get("q", auto_ack=True)
    assert received == sent


def test_unroutable_mandatory_messages_come_back(channel: BlockingChannel) -> None:
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.UnroutableError) as caught:
        channel.basic_publish("amq.direct", "nobody", b"back", mandatory=True)
    (returned,) = caught.value.messages
    assert returned.method.reply_code == 312
    assert returned.body == b"back"


def test_nack_requeues_in_place_and_marks(channel: BlockingChannel) -> None:
    channel.queue_declare("q", durable=True)
    for body in (b"1", b"2", b"3"):
        channel.basic_publish("", "q", body)
    first, _, _ = channel.basic_get("q")
    channel.basic_nack(first.delivery_tag, requeue=True)
    again, properties, body = channel.basic_get("q")
    assert (again.redelivered, body) == (True, b"1")
    assert properties.headers is None
    channel.basic_ack(again.delivery_tag)
    assert _drain(channel, "q", 2) == [b"2", b"3"]


def test_a_consumer_that_gives_back_its_one_message_gets_it_again_before_the_next(
    channel: BlockingChannel,
) -> None:
    channel.queue_declare("q", durable=True)
    for body in (b"1", b"2"):
        channel.basic_publish("", "q", body)
    channel.basic_qos(prefetch_count=1)
    got: list[bytes] = []
    for method, _, body in channel.consume("q", inactivity_timeout=10):
        assert method is not None
        assert body is not None
        got.append(body)
        if len(got) <= 2:
            channel.basic_nack(method.delivery_tag, requeue=True)
        else:
            channel.basic_ack(method.delivery_tag)
        if len(got) == 4:
            break
    assert got == [b"1", b"1", b"1", b"2"]


def test_a_closed_channel_gives_its_messages_back(
    connect: Callable[[], BlockingConnection],
) -> None:
    connection = connect()
    first = connection.channel()
    first.queue_declare("q", durable=True)
    first.basic_publish("", "q", b"x")
    assert first.basic_get("q")[2] == b"x"
    first.close()
    second = connection.channel()
    method, _, body = second.basic_get("q")
    assert body == b"x"
    assert method.redelivered


def test_rejected_messages_go_to_the_dead_letter_exchange(channel: BlockingChannel) -> None:
    channel.exchange_declare("dlx", "topic", durable=True)
    channel.queue_declare("dead", durable=True)
    channel.queue_bind("dead", "dlx", "gone.*")
    channel.queue_declare(
        "work",
        durable=True,
        arguments={"x-dead-letter-exchange": "dlx", "x-dead-letter-routing-key": "gone.work"},
    )
    channel.basic_publish("", "work", b"bad", pika.BasicProperties(expiration="60000"))
    method, _, _ = channel.basic_get("work")
    channel.basic_reject(method.delivery_tag, requeue=False)
    for _ in range(200):
        method, properties, body = channel.basic_get("dead", auto_ack=True)
        if method is not None:
            break
        time.sleep(0.01)
    assert body == b"bad"
    assert (method.exchange, method.routing_key) == ("dlx", "gone.work")
    assert properties.expiration is None
    (death,) = properties.headers["x-death"]
    assert death["queue"] == "work"
    assert death["reason"] == "rejected"
    assert death["count"] == 1
    assert death["exchange"] == ""
    assert death["routing-keys"] == ["work"]
    assert death["original-expiration"] == "60000"
    assert properties.headers["x-first-death-queue"] == "work"


def test_a_dead_letter_keeps_its_own_key_if_none_is_given(channel: BlockingChannel) -> None:
    channel.exchange_declare("dlx", "topic", durable=True)
    channel.queue_declare("dead", durable=True)
    channel.queue_bind("dead", "dlx", "orders.*.eu")
    channel.queue_declare("work", durable=True, arguments={"x-dead-letter-exchange": "dlx"})
    channel.queue_bind("work", "amq.topic", "orders.#")
    channel.basic_publish("amq.topic", "orders.new.eu", b"x")
    method, _, _ = channel.basic_get("work")
    channel.basic_nack(method.delivery_tag, requeue=False)
    assert _drain(channel, "dead", 1) == [b"x"]


def test_expired_messages_are_not_delivered_and_dead_lettered(channel: BlockingChannel) -> None:
    channel.queue_declare("dead", durable=True)
    channel.queue_declare(
        "short",
        durable=True,
        arguments={
            "x-message-ttl": 100,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "dead",
        },
    )
    channel.queue_declare("own", durable=True)
    channel.basic_publish("", "short", b"queue ttl")
    channel.basic_publish("", "own", b"own ttl", pika.BasicProperties(expiration="50"))
    time.sleep(0.3)
    assert channel.basic_get("own")[0] is None
    assert channel.basic_get("short")[0] is None
    assert _drain(channel, "dead", 1) == [b"queue ttl"]


@pytest.mark.parametrize("of_queue", [True, False])
def test_with_a_ttl_of_zero_who_waits_gets_it_and_nobody_else(
    connect: Callable[[], BlockingConnection], of_queue: bool
) -> None:
    """Each of them waits for the disk, which takes longer than no time."""
    giver, recorder = connect().channel(), connect().channel()
    arguments = {"x-message-ttl": 0} if of_queue else {}
    giver.queue_declare("now", durable=True, arguments=arguments)
    giver.confirm_delivery()
    now = pika.BasicProperties(expiration="0")
    giver.basic_publish("", "now", b"nobody waits", now)
    assert recorder.basic_get("now")[0] is None
    got: list[bytes] = []
    recorder.basic_consume("now", lambda *said: got.append(said[3]), auto_ack=True)
    sent = [b"%d" % number for number in range(50)]
    for body in sent:
        giver.basic_publish("", "now", body, now)
    ends = time.monotonic() + 10
    while len(got) < len(sent):
        assert time.monotonic() < ends, got
        recorder.connection.process_data_events(time_limit=0.1)
    assert got == sent


def test_a_full_queue_drops_its_head_or_refuses(channel: BlockingChannel) -> None:
    channel.queue_declare("head", durable=True, arguments={"x-max-length": 2})
    for body in (b"1", b"2", b"3"):
        channel.basic_publish("", "head", body)
    assert _drain(channel, "head", 2) == [b"2", b"3"]
    channel.queue_declare(
        "refuses", durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"}
    )
    channel.confirm_delivery()
    channel.basic_publish("", "refuses", b"1")
    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish("", "refuses", b"2")
    assert _drain(channel, "refuses", 1) == [b"1"]


def test_priorities_are_served_first(channel: BlockingChannel) -> None:
    channel.queue_declare("q", durable=True, arguments={"x-max-priority": 9})
    for priority in (1, 9, 5, None):
        properties = pika.BasicProperties(priority=priority)
        channel.basic_publish("", "q", str(priority).encode(), properties)
    assert _drain(channel, "q", 4) == [b"9", b"5", b"1", b"None"]


def _wait_until_gone(channel: BlockingChannel, queue: str) -> None:
    """Until a passive declare answers 404."""
    codes: list[int] = []
    for _ in range(200):
        try:
            channel.connection.channel().queue_declare(queue, passive=True)
        except pika.exceptions.ChannelClosedByBroker as error:
            codes.append(error.reply_code)
            if error.reply_code == 404:
                return
        time.sleep(0.01)
    raise AssertionError(f"queue {queue} is still there: {set(codes)}")


def test_an_exclusive_queue_is_its_connections_own(
    connect: Callable[[], BlockingConnection],
) -> None:
    owner, other = connect(), connect()
    queue = owner.channel().queue_declare("", exclusive=True).method.queue
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        other.channel().queue_declare(queue, passive=True)
    assert caught.value.reply_code == 405
    owner.close()
    _wait_until_gone(other.channel(), queue)


def test_an_auto_delete_queue_goes_with_its_last_consumer(channel: BlockingChannel) -> None:
    channel.queue_declare("temporary", auto_delete=True)
    tag = channel.basic_consume("temporary", lambda *_: None)
    channel.queue_declare("temporary", passive=True)
    channel.basic_cancel(tag)
    _wait_until_gone(channel, "temporary")


def test_an_auto_delete_exchange_goes_with_its_last_binding(channel: BlockingChannel) -> None:
    channel.exchange_declare("temporary", "fanout", auto_delete=True)
    channel.queue_declare("q", durable=True)
    channel.queue_bind("q", "temporary")
    channel.exchange_declare("temporary", passive=True)
    channel.queue_unbind("q", "temporary")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.exchange_declare("temporary", passive=True)
    assert caught.value.reply_code == 404


def test_purge_and_conditional_deletion(connect: Callable[[], BlockingConnection]) -> None:
    connection = connect()
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    for _ in range(3):
        channel.basic_publish("", "q", b"x")
    assert channel.queue_declare("q", passive=True).method.message_count == 3
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.queue_delete("q", if_empty=True)
    assert caught.value.reply_code == 406
    channel = connection.channel()
    assert channel.queue_purge("q").method.message_count == 3
    channel.basic_consume("q", lambda *_: None)
    other = connection.channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        other.queue_delete("q", if_unused=True)
    assert caught.value.reply_code == 406
    assert connection.channel().queue_delete("q").method.message_count == 0


def test_a_single_active_consumer_and_its_successor(channel: BlockingChannel) -> None:
    channel.queue_declare("q", durable=True, arguments={"x-single-active-consumer": True})
    seen: list[str] = []

    def recorder(name: str) -> Callable[..., None]:
        def take(channel: BlockingChannel, method: object, *_: object) -> None:
            seen.append(name)
            channel.basic_ack(method.delivery_tag)  # type: ignore[attr-defined]

        return take

    first = channel.basic_consume("q", recorder("first"))
    channel.basic_consume("q", recorder("second"))
    for _ in range(3):
        channel.basic_publish("", "q", b"x")
    deadline = time.monotonic() + 10
    while len(seen) < 3 and time.monotonic() < deadline:
        channel.connection.process_data_events(time_limit=0.1)
    channel.basic_cancel(first)
    channel.basic_publish("", "q", b"x")
    while len(seen) < 4 and time.monotonic() < deadline:
        channel.connection.process_data_events(time_limit=0.1)
    assert seen == ["first", "first", "first", "second"]


def test_what_is_too_much_of_a_priority_queue_is_dropped_from_its_head(
    channel: BlockingChannel,
) -> None:
    """As RabbitMQ's: the head is what would be delivered next, of the highest priority."""
    channel.queue_declare("few", arguments={"x-max-priority": 5, "x-max-length": 3})
    channel.confirm_delivery()
    for body in (b"1a", b"5a", b"3a", b"1b", b"4a", b"0a"):
        channel.basic_publish("", "few", body, pika.BasicProperties(priority=int(body[:1])))
    assert _drain(channel, "few", 3) == [b"1a", b"1b", b"0a"]


def test_a_delivery_limit_dead_letters(channel: BlockingChannel) -> None:
    channel.queue_declare("dead", durable=True)
    channel.queue_declare(
        "work",
        durable=True,
        arguments={
            "x-queue-type": "quorum",
            "x-delivery-limit": 2,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "dead",
        },
    )
    channel.basic_publish("", "work", b"poison")
    for count in range(3):
        method, properties, _ = channel.basic_get("work")
        assert properties.headers == ({"x-delivery-count": count} if count else None)
        channel.basic_nack(method.delivery_tag, requeue=True)
    assert channel.basic_get("work")[0] is None
    assert _drain(channel, "dead", 1) == [b"poison"]


def test_a_deleted_queue_cancels_its_consumers(connect: Callable[[], BlockingConnection]) -> None:
    channel = connect().channel()
    channel.queue_declare("q", durable=True)
    cancelled: list[str] = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    tag = channel.basic_consume("q", lambda *_: None)
    connect().channel().queue_delete("q")
    channel.connection.process_data_events(time_limit=5)
    assert cancelled == [tag]


def test_messages_survive_a_restart(tmp_path: object) -> None:
    from pathlib import Path

    from tests.adapters.amqp.broker import broker_in_thread

    directory = Path(str(tmp_path)) / "data"
    with broker_in_thread(directory) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url()))
        channel = connection.channel()
        channel.exchange_declare("e", "direct", durable=True)
        channel.queue_declare("q", durable=True, arguments={"x-max-priority": 3})
        channel.queue_bind("q", "e", "k")
        channel.confirm_delivery()
        for number in range(20):
            properties = pika.BasicProperties(priority=number % 3, delivery_mode=2)
            channel.basic_publish("e", "k", b"%02d" % number, properties)
        for _ in range(5):
            method, _, _ = channel.basic_get("q")
            channel.basic_ack(method.delivery_tag)
        connection.close()
    with broker_in_thread(directory) as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url()))
        channel = connection.channel()
        declared = channel.queue_declare("q", durable=True, arguments={"x-max-priority": 3})
        assert declared.method.message_count == 15
        channel.exchange_declare("e", "direct", durable=True)
        channel.basic_publish("e", "k", b"after")
        bodies = _drain(channel, "q", 16)
        assert max(bodies) == b"after"
        assert len(set(bodies)) == 16
        connection.close()


def test_a_message_of_16_mib_is_taken_and_one_octet_more_is_not(channel: BlockingChannel) -> None:
    channel.queue_declare("q", durable=True)
    body = bytes(range(256)) * 65_536
    channel.basic_publish("", "q", body)
    assert channel.basic_get("q", auto_ack=True)[2] == body
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.basic_publish("", "q", body + b"x")
    assert caught.value.reply_code == 406


def test_wrong_passwords_and_virtual_hosts_are_refused(
    threaded_broker: Broker, connect: Callable[[str], BlockingConnection]
) -> None:
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        connect(threaded_broker.url("guest:wrong"))
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="530"):
        connect(threaded_broker.url(virtual_host="elsewhere"))


def test_a_delayed_message_waits(channel: BlockingChannel) -> None:
    channel.exchange_declare(
        "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"}
    )
    channel.queue_declare("q", durable=True)
    channel.queue_bind("q", "later", "k")
    channel.basic_publish("later", "k", b"late", pika.BasicProperties(headers={"x-delay": 300}))
    channel.basic_publish("later", "k", b"soon")
    assert _drain(channel, "q", 1) == [b"soon"]
    assert channel.basic_get("q")[0] is None
    assert _drain(channel, "q", 1, within_s=3) == [b"late"]
