"""What is tried at both brokers: each function is a scenario, its docstring says what it is about.

They cover what clients of RabbitMQ rely on: passive, exclusive, auto-delete and server-named
queues; equivalence; mandatory and confirms; get, ack, nack, reject, recover and qos; TTL, dead
letters, limits; transactions; direct replies; and with which reply code a misuse is answered.
"""

from __future__ import annotations

from collections.abc import Callable

from . import dead_letters, definitions, replies, traffic, transactions
from .trial import Trial

SCENARIOS: dict[str, Callable[[Trial], None]] = {
    each.__name__: each
    for each in (
        definitions.passive_declare,
        definitions.exclusive_queue,
        definitions.auto_delete_queue,
        definitions.server_named_queue,
        definitions.queue_equivalence,
        definitions.queue_arguments,
        definitions.quorum_queue,
        definitions.delete_and_purge,
        definitions.expiring_queue,
        definitions.exchange_equivalence,
        definitions.exchange_deletion,
        definitions.bindings,
        definitions.routing,
        traffic.mandatory,
        traffic.refused_publishes,
        traffic.confirms,
        traffic.properties_come_back,
        traffic.get,
        traffic.nack_and_reject,
        traffic.recover,
        traffic.unknown_tags,
        traffic.prefetch,
        traffic.shared_prefetch,
        traffic.consumer_tags,
        traffic.exclusive_consumer,
        traffic.deleted_under_a_consumer,
        traffic.closing_gives_back,
        traffic.priorities,
        dead_letters.rejected_dead_letters,
        dead_letters.expired_dead_letters,
        dead_letters.full_queues,
        dead_letters.dead_letters_in_circles,
        dead_letters.delivery_limit,
        dead_letters.misuse,
        dead_letters.copies,
        dead_letters.exchange_type,
        dead_letters.queue_mode,
        transactions.transaction,
        transactions.settled_in_a_transaction,
        transactions.acked_twice_in_a_transaction,
        transactions.returned_at_the_commit,
        transactions.modes_of_a_channel,
        transactions.refused_in_a_transaction,
        replies.direct_reply,
        replies.direct_reply_misuse,
    )
}
