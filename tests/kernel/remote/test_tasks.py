"""Which topics a gateway's clients produce to and consume from."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel.api.client import ConsumerSpec, DeleteTopic, PutTopic, ReceiveSpec
from kernel.api.model import DEFAULT_GROUP, DEFAULT_TENANT, GroupOptions, TopicInfo, TopicOptions
from kernel.remote import served_topics
from kernel.remote.client import ClusterClient
from kernel.remote.served_topics import KEPT_REPORTS, Consumed, Consumers, Produced
from tests.kernel.remote.cluster import gateway_of, running_stores
from tests.kernel.remote.test_pulls import published
from tests.kernel.remote.test_streams import Recorder

MOST = 10


async def topic_of(client: ClusterClient, name: str, **options: object) -> TopicInfo:
    groups = {DEFAULT_GROUP: GroupOptions()}
    wanted = TopicOptions(**options)  # type: ignore[arg-type] # names of options
    made = await client.administer(PutTopic(DEFAULT_TENANT, name, wanted, groups))
    assert isinstance(made, TopicInfo)
    return made


async def test_messages_are_counted_by_topic_until_they_are_told(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        busy = await topic_of(client, "busy", queues=3)
        idle = await topic_of(client, "idle")
        secret = await topic_of(client, "secret", hidden=True)
        await published(client, busy, 0, b"1", b"2")
        await published(client, busy, 1, b"3")
        await published(client, idle, 0, b"1")
        await published(client, secret, 0, b"1")
        assert client.tasks.produced(MOST) == [
            Produced(DEFAULT_TENANT, "busy", 3),
            Produced(DEFAULT_TENANT, "idle", 1),
        ]
        assert client.tasks.produced(MOST) == []
        await published(client, busy, 0, b"1", b"2")
        await published(client, idle, 0, b"1")
        assert client.tasks.produced(1) == [Produced(DEFAULT_TENANT, "busy", 2)]
        await published(client, idle, 0, b"1")
        await client.administer(DeleteTopic(DEFAULT_TENANT, "idle"))
        assert client.tasks.produced(MOST) == []


async def test_consumers_are_those_that_are_there_and_those_that_have_pulled(
    tmp_path: Path,
) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await topic_of(client, "t", queues=3)
        consumers_by_key = [Recorder(client, topic, 1), Recorder(client, topic, 1)]
        twice = Recorder(client, topic, 1)
        client.attach(ConsumerSpec(topic, DEFAULT_GROUP, twice.session), twice)
        for number in (1, 2, 1):
            spec = ReceiveSpec(
                topic, DEFAULT_GROUP, lease_ms=1_000, origin=3, consumer_key=f"c{number}"
            )
            await client.receive(spec)
        pushed = Consumers(DEFAULT_TENANT, "t", DEFAULT_GROUP, 0)
        pulled = pushed._replace(origin=3)
        assert client.tasks.consumed(MOST) == [Consumed(pushed, 4), Consumed(pulled, 2)]
        first, second = (each.session.id for each in consumers_by_key)
        assert client.tasks.consumers_by_key(pushed) == {first: 1, second: 1, twice.session.id: 2}
        assert client.tasks.consumers_by_key(pulled) == {"c1": 1, "c2": 1}
        assert client.tasks.consumers_by_key(pushed._replace(topic="u")) == {}
        consumers_by_key[0].session.close()
        for _ in range(KEPT_REPORTS - 1):
            assert client.tasks.consumed(MOST) == [Consumed(pushed, 3), Consumed(pulled, 2)]
        assert client.tasks.consumed(MOST) == [Consumed(pushed, 3)]
        assert client.tasks.consumers_by_key(pulled) == {}


async def test_who_gets_single_messages_in_a_session_is_the_session(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await topic_of(client, "t")
        session = client.open_session("s", 7)
        await client.receive(ReceiveSpec(topic, DEFAULT_GROUP, session=session))
        of = Consumers(DEFAULT_TENANT, "t", DEFAULT_GROUP, 7)
        assert client.tasks.consumers_by_key(of) == {session.id: 1}


async def test_more_who_pull_than_are_counted_are_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_topics, "COUNTED_MAX", 2)
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await topic_of(client, "t")
        of = Consumers(DEFAULT_TENANT, "t", DEFAULT_GROUP, 3)
        for number in range(4):
            client.tasks.pulled(ReceiveSpec(topic, DEFAULT_GROUP, origin=3, consumer_key=number))
        assert client.tasks.consumers_by_key(of) == {0: 1, 1: 1}
        for _ in range(KEPT_REPORTS + 1):
            client.tasks.consumed(MOST)
        client.tasks.pulled(ReceiveSpec(topic, DEFAULT_GROUP, origin=3, consumer_key=9))
        assert client.tasks.consumers_by_key(of) == {9: 1}
