"""The load tester's frames, read back by pamqp; batches are patched where they should be."""

from __future__ import annotations

import pamqp.body
import pamqp.commands
import pamqp.frame
import pamqp.header
import pytest

from benchmarks.load.amqp_spec import first_lane, first_sequence, sent_to_lane
from benchmarks.load.amqp_wire import (
    STAMP,
    AmqpUrl,
    PublishBatch,
    Template,
    basic_consume,
    parse_url,
    publish_template,
    queue_declare,
    read_string_table,
    start_ok,
    table,
    tune_ok,
)
from benchmarks.load.errors import BenchError


def frames(data: bytes) -> list[tuple[int, object]]:
    """(channel, frame) of every frame, by pamqp."""
    found = []
    while data:
        used, channel, frame = pamqp.frame.unmarshal(data)
        found.append((channel, frame))
        data = data[used:]
    return found


def publishes(data: bytes) -> list[tuple[str, int, int, int]]:
    """(routing key, body length, key, time) of every publish in `data`."""
    found = []
    parts = iter(frames(data))
    for _, publish in parts:
        assert isinstance(publish, pamqp.commands.Basic.Publish)
        header = next(parts)[1]
        assert isinstance(header, pamqp.header.ContentHeader)
        body = b""
        while len(body) < header.body_size:
            content = next(parts)[1]
            assert isinstance(content, pamqp.body.ContentBody)
            body += content.value
        found.append((publish.routing_key, len(body), *STAMP.unpack_from(body)))
    return found


def template(key: str = "q-0000", size: int = 100, frame_size_max: int = 131_072) -> Template:
    return publish_template("", key, size, persistent=True, frame_size_max=frame_size_max)


@pytest.mark.parametrize("persistent", [True, False])
def test_a_template_is_one_publish_with_its_delivery_mode(persistent: bool) -> None:
    made = publish_template("logs", "key", 1024, persistent=persistent, frame_size_max=4096)
    publish, header, body = (frame for _, frame in frames(made.data))
    assert isinstance(publish, pamqp.commands.Basic.Publish)
    assert (publish.exchange, publish.routing_key) == ("logs", "key")
    assert (publish.mandatory, publish.immediate) == (False, False)
    assert isinstance(header, pamqp.header.ContentHeader)
    assert header.properties.delivery_mode == (2 if persistent else 1)
    assert header.body_size == 1024
    assert isinstance(body, pamqp.body.ContentBody)
    assert len(body.value) == 1024


@pytest.mark.parametrize("size", [16, 17, 4088, 4089, 20_000])
def test_a_large_body_is_cut_at_the_frame_size(size: int) -> None:
    made = template(size=size, frame_size_max=4096)
    assert publishes(made.data) == [("q-0000", size, 0, 0)]
    assert max(len(b.value) for _, b in frames(made.data)[2:]) <= 4088


def test_a_batch_is_stamped_and_goes_on_where_the_last_one_ended() -> None:
    batch = PublishBatch([template()], first_key=500, first_lane=0)
    assert publishes(bytes(batch.make(3, 77))) == [("q-0000", 100, 500 + i, 77) for i in range(3)]
    assert publishes(bytes(batch.make(2, 88))) == [("q-0000", 100, 503 + i, 88) for i in range(2)]


def test_a_batch_takes_lanes_in_turn_across_batches() -> None:
    batch = PublishBatch([template(f"q-{n:04}") for n in range(3)], first_key=0, first_lane=2)
    keys = [key for count in (1, 4, 2) for key, *_ in publishes(bytes(batch.make(count, 0)))]
    assert keys == ["q-0002", "q-0000", "q-0001", "q-0002", "q-0000", "q-0001", "q-0002"]


def test_a_full_batch_may_start_at_any_lane() -> None:
    batch = PublishBatch([template(f"q-{n:04}") for n in range(5)], first_key=0, first_lane=4)
    made = publishes(bytes(batch.make(batch.count_max, 0)))
    assert [key for key, *_ in made] == [f"q-{(4 + i) % 5:04}" for i in range(batch.count_max)]
    assert [key for _, _, key, _ in made] == list(range(batch.count_max))


def test_scheduled_messages_carry_their_own_times() -> None:
    batch = PublishBatch([template()], first_key=9, first_lane=0)
    made = publishes(bytes(batch.make_scheduled([100, 250, 300])))
    assert [(key, due) for _, _, key, due in made] == [(9, 100), (10, 250), (11, 300)]


def test_a_batch_never_changes_after_it_was_made() -> None:
    batch = PublishBatch([template()], first_key=0, first_lane=0)
    first = batch.make(2, 1)
    before = bytes(first)
    batch.make(2, 2)
    assert bytes(first) == before


def test_lanes_of_unequal_length_are_refused() -> None:
    with pytest.raises(BenchError, match="one length"):
        PublishBatch([template("a"), template("bb")], 0, 0)


def test_set_up_methods_are_what_pamqp_reads() -> None:
    (_, consume), (_, declare) = frames(
        basic_consume(7, "jobs", no_ack=True)
        + queue_declare(1, "jobs", 2, {"x-queue-type": "quorum"})
    )
    assert isinstance(consume, pamqp.commands.Basic.Consume)
    assert (consume.queue, consume.consumer_tag) == ("jobs", "c")
    assert (consume.no_ack, consume.nowait) == (True, True)
    assert isinstance(declare, pamqp.commands.Queue.Declare)
    assert (declare.queue, declare.durable, declare.passive) == ("jobs", True, False)
    assert declare.arguments == {"x-queue-type": "quorum"}


def test_start_ok_signs_in_with_plain() -> None:
    [(channel, answer)] = frames(start_ok(AmqpUrl("h", 1, "me", "secret", "/")))
    assert isinstance(answer, pamqp.commands.Connection.StartOk)
    assert (channel, answer.mechanism, answer.response) == (0, "PLAIN", "\0me\0secret")
    assert answer.client_properties == {
        "product": "weir bench",
        "capabilities": {"authentication_failure_close": True},
    }


def test_tune_ok_lowers_the_frame_size_and_turns_heartbeats_off() -> None:
    offer = b"\x00\x0a\x00\x1e" + (0).to_bytes(2, "big") + (0).to_bytes(4, "big") + b"\x00\x3c"
    frame, frame_size, channels = tune_ok(offer)
    [(_, answer)] = frames(frame)
    assert isinstance(answer, pamqp.commands.Connection.TuneOk)
    assert (answer.frame_max, answer.heartbeat) == (131_072, 0)
    assert (frame_size, channels) == (131_072, 65_535)


def test_product_and_version_are_read_past_other_entries() -> None:
    items = b"\x01xt\x01" + b"\x04capsF" + table({"a": "b"}) + table({"version": "4.1"})[4:]
    assert read_string_table(len(items).to_bytes(4, "big") + items, 0) == {"version": "4.1"}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("amqp://", AmqpUrl("127.0.0.1", 5672, "guest", "guest", "/")),
        ("amqp://u%40:p%2F@host:9/%2f", AmqpUrl("host", 9, "u@", "p/", "/")),
        ("amqp://[::1]/team", AmqpUrl("::1", 5672, "guest", "guest", "team")),
    ],
)
def test_urls_are_read(url: str, expected: AmqpUrl) -> None:
    assert parse_url(url) == expected


@pytest.mark.parametrize("url", ["amqps://host", "http://host", "amqp://host:99999", "host"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(BenchError):
        parse_url(url)


@pytest.mark.parametrize(("producers", "lanes", "sent"), [(3, 1, 10), (2, 4, 11), (4, 1000, 777)])
def test_every_message_of_every_producer_is_accounted_to_one_lane(
    producers: int, lanes: int, sent: int
) -> None:
    for producer in range(producers):
        counts = [0] * lanes
        firsts: dict[int, int] = {}
        for sequence in range(sent):
            lane = (first_lane(producer, lanes) + sequence) % lanes
            counts[lane] += 1
            firsts.setdefault(lane, sequence)
        assert [sent_to_lane(sent, producer, lane, lanes) for lane in range(lanes)] == counts
        assert all(first_sequence(producer, lane, lanes) == s for lane, s in firsts.items())
