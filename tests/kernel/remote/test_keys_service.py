"""Which keys a sealed queue has unsettled, asked from store to store over real connections."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from kernel.api import message as messages
from kernel.api.changes import PutTopic, ResizeTopic
from kernel.api.client import LeaseChange, LeaseVerb, ReceiveSpec
from kernel.api.model import DEFAULT_GROUP, GroupOptions, TopicInfo, TopicOptions
from kernel.common.errors import Code, KernelError
from kernel.common.feature_levels import LATEST
from kernel.common.ids import QueueId, RaftGroup
from kernel.remote.client import ClusterClient
from kernel.remote.leader_calls.call_numbers import UNSETTLED_KEYS
from kernel.remote.leader_calls.call_wire import WireError
from kernel.remote.peer_stores import keys_service
from kernel.remote.peer_stores.keys_service import (
    ANSWER_BYTES_MAX,
    KEY_BYTES,
    KeysService,
    ask_keys,
    decode_answer,
    encode_answer,
)
from kernel.requests.peer_stores import NO_VERSION, KeysAnswer, KeysQuestion
from kernel.store.replicas.unsettled_keys import GATE_MESSAGES_MAX
from tests.kernel.remote.local import peer_of
from tests.kernel.remote.spread import T, lead, spread_cluster
from tests.kernel.three_stores import Node
from tests.simulator.peer import Draft

LETTERS = "abcdefgh"


@pytest.mark.parametrize(
    "answer",
    [
        KeysAnswer((1, 2, 3), (), is_all=False),
        KeysAnswer((1, 2, 3), (1, (1 << 64) - 1), is_all=True),
        KeysAnswer(NO_VERSION, None, is_all=True),
        KeysAnswer((1, 2, 3), tuple(range(GATE_MESSAGES_MAX)), is_all=True),
    ],
)
def test_an_answer_is_the_same_behind_the_wire(answer: KeysAnswer) -> None:
    (sent,) = encode_answer(answer)
    assert decode_answer(sent) == answer
    assert len(sent) < ANSWER_BYTES_MAX + 64


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        [[1, 2], b"", True],
        [[1, 2, -3], b"", True],
        [[1, 2, 3], b"1234567", True],
        [[1, 2, 3], bytes(ANSWER_BYTES_MAX + KEY_BYTES), True],
        [[1, 2, 3], b"", 1],
    ],
)
def test_what_is_no_answer_is_not_taken_for_one(wrong: object) -> None:
    with pytest.raises(WireError):
        decode_answer(msgspec.msgpack.encode(wrong))


async def received(client: ClusterClient, count: int) -> dict[str, bytes]:
    """Receive so many messages: their tokens."""
    found: dict[str, bytes] = {}
    async with asyncio.timeout(30):
        while len(found) < count:
            spec = ReceiveSpec(topic_of(client), DEFAULT_GROUP, 10, 500, lease_ms=12 * 3_600_000)
            got = await client.receive(spec)
            if got.deliveries is not None:
                bodies = (messages.decode(each).body.decode() for each in got.deliveries.slots)
                found.update(zip(bodies, got.tokens, strict=True))
    return found


def topic_of(client: ClusterClient) -> TopicInfo:
    topic = client.topic(T, "work")
    assert topic is not None
    return topic


async def held_and_spread(nodes: list[Node], client: ClusterClient) -> dict[str, bytes]:
    """The first message of each key is held, the second published behind a resize that spreads."""
    home = next(node for node in nodes if node.serves(RaftGroup(0)))
    await home.opened.client.raise_level(LATEST)
    groups = {DEFAULT_GROUP: GroupOptions(ordered=True)}
    await client.administer(PutTopic(T, "work", TopicOptions(), groups))
    peer = peer_of(client)
    first = [Draft(f"{each}1".encode(), key=each.encode()) for each in LETTERS]
    await peer.publish(client.to_topic(topic_of(client)), *first)
    held = await received(client, len(LETTERS))
    async with asyncio.timeout(30):
        while True:
            try:
                await client.administer(ResizeTopic(T, "work", 6, by_key=True, spread=True))
            except KernelError:
                await asyncio.sleep(0.1)  # the level is not on everywhere
            else:
                break
    assert len({ref.group for ref in topic_of(client).regular}) == 3
    second = [Draft(f"{each}2".encode(), key=each.encode()) for each in LETTERS]
    await peer.publish(client.to_topic(topic_of(client)), *second)
    return held


async def settle(client: ClusterClient, *tokens: bytes) -> None:
    changes = [LeaseChange(each, LeaseVerb.ACK) for each in tokens]
    assert not any(await client.settle_leases(topic_of(client), DEFAULT_GROUP, changes))


async def test_a_lease_of_hours_blocks_its_key_in_other_stores_and_no_other(
    tmp_path: Path,
) -> None:
    async with spread_cluster(tmp_path) as (nodes, client):
        held = await held_and_spread(nodes, client)
        stuck = held.pop("a1")
        await settle(client, *held.values())
        wanted = {f"{each}2" for each in LETTERS[1:]}
        assert set(await received(client, len(wanted))) == wanted
        spec = ReceiveSpec(topic_of(client), DEFAULT_GROUP, 10, 1_500)
        assert (await client.receive(spec)).deliveries is None
        await settle(client, stuck)
        assert set(await received(client, 1)) == {"a2"}


async def test_a_new_leader_of_the_predecessor_is_asked_instead(tmp_path: Path) -> None:
    async with spread_cluster(tmp_path) as (nodes, client):
        held = await held_and_spread(nodes, client)
        await settle(client, held.pop("b1"))
        assert set(await received(client, 1)) == {"b2"}
        (sealed,) = [ref for ref in topic_of(client).queues if ref not in topic_of(client).writable]
        leader = next(node for node in nodes if node.serves(sealed.group))
        await lead(nodes, sealed.group, leader.number % len(nodes) + 1)
        await settle(client, held.pop("c1"), held.pop("d1"))
        assert set(await received(client, 2)) == {"c2", "d2"}


async def test_a_store_of_an_older_build_is_asked_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not know the section: the whole successor waits, and nothing is lost."""
    monkeypatch.setattr(KeysService, "methods", range(200, 201))
    async with spread_cluster(tmp_path) as (nodes, client):
        held = await held_and_spread(nodes, client)
        other = next(node for node in nodes if not node.serves(RaftGroup(1)))
        peers = other.opened.client._peer_stores
        question = KeysQuestion(QueueId(1), DEFAULT_GROUP, 0, NO_VERSION)
        assert peers is not None
        with pytest.raises(KernelError, match="a store has no method 150") as caught:
            await peers.unsettled_keys(RaftGroup(1), question)
        assert caught.value.code is Code.INVALID_ARGUMENT
        stuck = held.pop("a1")
        await settle(client, *held.values())
        spec = ReceiveSpec(topic_of(client), DEFAULT_GROUP, 10, 3_000)
        some: set[str] = set()
        while (got := await client.receive(spec)).deliveries is not None:
            some |= {messages.decode(each).body.decode() for each in got.deliveries.slots}
            await settle(client, *got.tokens)
        assert len(some) < len(LETTERS) - 1
        await settle(client, stuck)
        assert len(await received(client, len(LETTERS) - len(some))) == len(LETTERS) - len(some)


async def test_who_does_not_lead_names_who_does(tmp_path: Path) -> None:
    async with spread_cluster(tmp_path) as (nodes, client):
        question = KeysQuestion(QueueId(1), DEFAULT_GROUP, 0, NO_VERSION)
        with pytest.raises(KernelError) as caught:
            await ask_keys(client.leaders, RaftGroup(1), question)
        assert caught.value.code is Code.NOT_FOUND
        leader = next(node for node in nodes if node.serves(RaftGroup(1)))
        answers: list[object] = []
        other = next(node for node in nodes if node is not leader)
        keys_service.answer_keys(other.opened.store, RaftGroup(1), question, answers.append)
        (answer,) = answers
        assert isinstance(answer, KernelError)
        assert (answer.code, answer.hint) == (Code.NOT_LEADER, leader.number)
        # Nor does it know anything for sure that may have been deposed: of a group that was deleted
        # and made again it would say that nothing is unsettled.
        leader.opened.store.replica(RaftGroup(1)).leased_until_ms = 0
        keys_service.answer_keys(leader.opened.store, RaftGroup(1), question, answers.append)
        assert isinstance(answers[1], KernelError)
        assert (answers[1].code, answers[1].hint) == (Code.NOT_LEADER, 0)
        assert keys_service.KEYS in UNSETTLED_KEYS
