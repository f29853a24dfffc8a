"""What tests do with transient topics of a gateway."""

from __future__ import annotations

from typing import cast

from kernel.api import message as messages
from kernel.api.client import Client, ConsumerSpec, Settlement
from kernel.api.message import Ext
from kernel.api.model import DEFAULT_GROUP, DEFAULT_TENANT, Reason, TopicInfo
from kernel.broker.delivery.consumers import Credit
from kernel.remote.client import ClusterClient
from kernel.store.leading.dead_letters import history_of
from tests.kernel.three_stores import CLOCK, Node, until
from tests.simulator.peer import Peer, Recorder


def peer_of(client: ClusterClient, name: str = "peer") -> Peer:
    """A connection of a gateway."""
    return Peer(cast("Client", client), CLOCK, name)


def recorder_at(client: ClusterClient, topic: TopicInfo, credit: int = 1_000) -> Recorder:
    """A consumer of a transient topic in the process where it lives; each delivery is acked."""
    recorder = Recorder(cast("Client", client))
    dispatcher = client.transient.replica.dispatcher(topic.queues[0].id, DEFAULT_GROUP)
    spec = ConsumerSpec(topic, DEFAULT_GROUP, client.open_session("taker"), auto_ack=True)
    recorder.consumer = dispatcher.attach(spec, recorder, Credit())
    recorder.grant(credit)
    return recorder


async def reject_first(client: ClusterClient, topic: TopicInfo) -> None:
    """Have the first message of a transient topic rejected by a consumer."""
    recorder = Recorder(cast("Client", client))
    dispatcher = client.transient.replica.dispatcher(topic.queues[0].id, DEFAULT_GROUP)
    spec = ConsumerSpec(topic, DEFAULT_GROUP, client.open_session("rejecting"))
    consumer = dispatcher.attach(spec, recorder, Credit())
    consumer.grant(1)
    (got, *_) = await recorder.wait_for(1)
    dispatcher.settle(consumer, Settlement.DEAD_LETTER, [got.offset], Reason.REJECTED, urgent=True)


async def durable_topic(nodes: list[Node], client: ClusterClient, name: str) -> TopicInfo:
    """A durable topic that a gateway knows of."""
    info = await Peer(nodes[0].opened.client, CLOCK, "maker").topic(name)
    if client.topic(DEFAULT_TENANT, name) is None:
        client.topology.put_topic(info)
    await until(lambda: client.topic(DEFAULT_TENANT, name))
    return info


def reasons(slot: bytes) -> list[tuple[str, str]]:
    """(topic, reason) of each time that a message was a dead letter, newest first."""
    found = messages.decode(slot)
    assert found.ext.get(Ext.DEAD_LETTER) is not None
    return [(str(each["topic"]), str(each["reason"])) for each in history_of(found)]
