"""pika, unmodified: transactions."""

from __future__ import annotations

from collections.abc import Callable

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

pytestmark = pytest.mark.interop


@pytest.fixture
def other(connect: Callable[[], BlockingConnection]) -> BlockingChannel:
    """A channel of another connection."""
    return connect().channel()


def test_a_transaction_takes_effect_at_its_commit(
    channel: BlockingChannel, other: BlockingChannel
) -> None:
    channel.queue_declare("in", durable=True)
    channel.queue_declare("out", durable=True)
    channel.basic_publish("", "in", b"asked")
    channel.tx_select()
    got, _, _ = channel.basic_get("in")
    assert got is not None
    channel.basic_publish("", "out", b"answer")
    channel.basic_ack(got.delivery_tag)
    assert other.basic_get("out")[0] is None
    channel.tx_commit()
    assert other.basic_get("out", auto_ack=True)[2] == b"answer"
    channel.close()
    assert other.basic_get("in")[0] is None  # acknowledged for good


def test_what_is_rolled_back_was_never_published_and_can_be_acked_again(
    channel: BlockingChannel, other: BlockingChannel
) -> None:
    channel.queue_declare("q", durable=True)
    channel.basic_publish("", "q", b"asked")
    channel.tx_select()
    got, _, _ = channel.basic_get("q")
    assert got is not None
    channel.basic_publish("", "q", b"answer")
    channel.basic_ack(got.delivery_tag)
    channel.tx_rollback()
    assert other.basic_get("q")[0] is None  # the answer is dropped, and the question held
    channel.basic_nack(got.delivery_tag, requeue=True)
    channel.tx_commit()
    again, _, body = other.basic_get("q")
    assert again is not None
    assert (again.redelivered, body) == (True, b"asked")


def test_a_transaction_returns_what_has_nowhere_to_go(channel: BlockingChannel) -> None:
    returned: list[bytes] = []
    channel.add_on_return_callback(
        lambda _channel, _method, _properties, body: returned.append(body)
    )
    channel.tx_select()
    channel.basic_publish("", "nowhere", b"lost", mandatory=True)
    channel.connection.process_data_events(0.1)
    assert returned == []
    channel.tx_commit()
    channel.connection.process_data_events(0)
    assert returned == [b"lost"]


def test_tx_and_confirms_exclude_each_other(
    channel: BlockingChannel, other: BlockingChannel
) -> None:
    channel.tx_select()
    channel.tx_select()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=r"406.*tx to confirm mode"):
        channel.confirm_delivery()
    other.confirm_delivery()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=r"406.*confirm to tx mode"):
        other.tx_select()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=r"406.*not transactional"):
        channel.connection.channel().tx_commit()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match=r"406.*not transactional"):
        channel.connection.channel().tx_rollback()
