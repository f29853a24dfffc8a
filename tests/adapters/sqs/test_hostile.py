"""SQS clients over a bad network between gateway and store (`tests.simulator.hostile`).

The tests are those of the service, unchanged: whatever the network does, a client sees what it sees
without it. These stand for all; WEIR_HOSTILE=<seed> runs every test of the adapter so.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.adapters.sqs import test_service_attempts as attempts
from tests.adapters.sqs import test_service_dead_letters as dead_letters
from tests.adapters.sqs import test_service_fair as fair
from tests.adapters.sqs import test_service_fifo as fifo
from tests.adapters.sqs import test_service_messages as standard
from tests.adapters.sqs import test_service_queues as queues
from tests.adapters.sqs import test_service_visibility as visibility
from tests.adapters.sqs.service import Service, service_in_thread
from tests.simulator.hostile import HostileClient

SEED = 7


@pytest.fixture(scope="module")
def service(tmp_path_factory) -> Iterator[Service]:
    path = tmp_path_factory.mktemp("data")
    with service_in_thread(path, hostile=SEED) as running:
        yield running


test_a_message_comes_back_as_it_was_sent = standard.test_a_message_comes_back_as_it_was_sent
test_ten_messages_at_most = standard.test_ten_messages_at_most_and_in_order_of_sending
test_a_batch_fails_in_part = standard.test_a_batch_fails_in_part
test_batches_of_deletions = standard.test_batches_of_deletions_and_visibility_fail_in_part
test_visibility = visibility.test_visibility_can_be_ended_and_extended
url = attempts.url
test_asked_for_again = (
    attempts.test_a_receive_that_is_asked_for_again_brings_the_same_messages_and_handles
)
test_fair_queues = fair.test_quiet_tenants_are_served_before_the_backlog_of_a_noisy_one
test_visible_at_once = visibility.test_a_visibility_timeout_of_zero_leaves_the_message_visible
test_deleting_twice = standard.test_deleting_twice_succeeds
test_a_long_poll = standard.test_a_long_poll_ends_when_a_message_comes
test_many_long_polls = standard.test_one_message_wakes_one_of_many_long_polls
test_order = fifo.test_messages_of_a_group_come_in_order_with_growing_sequence_numbers
test_blocked_groups = fifo.test_a_group_is_blocked_while_one_of_its_messages_is_in_flight
test_one_group_first = fifo.test_a_receive_is_filled_from_one_group_before_it_goes_on_to_the_next
test_alone = fifo.test_a_message_whose_visibility_ended_comes_alone_while_later_ones_are_in_flight
test_duplicates = fifo.test_a_duplicate_is_answered_with_the_original_and_its_own_digests
test_duplicates_within_one_batch = fifo.test_duplicates_within_one_batch
test_long_polls_and_groups = fifo.test_long_polls_wake_when_a_group_becomes_free
test_dead_letters = dead_letters.test_dead_letters_of_many_messages_lose_none
test_giving_back = dead_letters.test_giving_a_message_back_counts_as_a_receive
test_a_name_taken = queues.test_a_name_taken_by_a_hidden_topic_cannot_be_created


def test_every_message_is_received_once(service: Service, sqs, make_queue) -> None:
    url = make_queue(fifo=True)
    for start in range(0, 200, 10):
        answer = sqs.send_message_batch(
            QueueUrl=url,
            Entries=[
                {
                    "Id": str(number),
                    "MessageBody": str(number),
                    "MessageGroupId": "g",
                    "MessageDeduplicationId": str(number),
                }
                for number in range(start, start + 10)
            ],
        )
        assert not answer.get("Failed")
    got: list[int] = []
    while len(got) < 200:
        found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=2)
        messages = found["Messages"]
        got += [int(each["Body"]) for each in messages]
        handles = [
            {"Id": each["Body"], "ReceiptHandle": each["ReceiptHandle"]} for each in messages
        ]
        assert not sqs.delete_message_batch(QueueUrl=url, Entries=handles).get("Failed")
    assert got == list(range(200))
    client = service.kernel
    assert isinstance(client, HostileClient)
    assert sum(client.link.failures.values()) > 0
