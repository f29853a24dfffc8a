"""RocketMQ clients over a bad network between gateway and store (`tests.simulator.hostile`).

The tests are those of the service, unchanged: whatever the network does, a client sees what it sees
without it. These stand for all; WEIR_HOSTILE=<seed> runs every test of the adapter so.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.rocketmq.errors import Code
from tests.adapters.rocketmq import test_clients as clients
from tests.adapters.rocketmq import test_real_client as real
from tests.adapters.rocketmq import test_receiving as receiving
from tests.adapters.rocketmq import test_sending as sending
from tests.adapters.rocketmq import test_settling as settling
from tests.adapters.rocketmq.support import Broker, Wire, broker_in_thread, message
from tests.simulator import hostile_link
from tests.simulator.hostile import HostileClient

SEED = 7


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker_in_thread(tmp_path_factory.mktemp("data"), real.SETTINGS, hostile=SEED) as running:
        yield running


topic = receiving.topic

test_offsets = sending.test_a_message_is_answered_with_its_id_and_offset
test_a_batch = sending.test_a_batch_goes_to_one_queue_in_its_order
test_duplicates = sending.test_a_message_sent_again_is_stored_once_where_the_topic_deduplicates
test_a_full_topic = sending.test_a_full_topic_makes_clients_wait
test_a_poll = receiving.test_a_poll_ends_with_the_message_that_comes
test_tags = receiving.test_tags_are_compared_not_their_hashes
test_message_groups = receiving.test_a_message_group_waits_for_its_head_and_others_go_on
test_a_repeated_attempt = (
    receiving.test_a_repeated_attempt_gets_the_same_messages_of_a_message_group
)
test_a_client_that_goes = receiving.test_what_a_client_that_goes_away_was_being_sent_comes_back
test_an_ack = settling.test_an_ack_is_final
test_acks = settling.test_a_batch_of_acks
test_dead_letters = settling.test_a_message_given_up_is_a_dead_letter
test_a_goodbye = clients.test_a_consumer_that_says_goodbye_gives_its_messages_back


def test_the_real_client(broker: Broker, tmp_path: Path) -> None:
    broker.topic("fifo", "fifo", queues=4)
    real.test_message_groups_keep_their_order(broker, tmp_path)


def test_every_message_is_received_once_and_in_order(
    broker: Broker, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hostile_link, "FAILURE_SHARE", 0.05)
    broker.topic("stream", "fifo", queues=3)
    wire.receive("stream", "g")
    for number in range(0, 60, 3):
        bodies = range(number, number + 3)
        answer = wire.send(
            *(message("stream", b"%d" % n, message_group=f"{n % 3}") for n in bodies)
        )
        assert answer.status.code == Code.OK
    got: list[int] = []
    while len(got) < 60:
        found = wire.receive("stream", "g", wait_s=5)
        assert found.messages
        got += [int(body) for body in found.bodies]
        assert wire.ack("stream", "g", *found.handles).status.code == Code.OK
    for group in range(3):
        assert [n for n in got if n % 3 == group] == list(range(group, 60, 3))
    client = broker.kernel
    assert isinstance(client, HostileClient)
    assert sum(client.link.failures.values()) > 0
