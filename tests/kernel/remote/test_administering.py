"""Changes of durable definitions, asked for by a gateway without a store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast
from unittest.mock import ANY

import msgspec
import pytest

from kernel.api.changes import (
    Administration,
    CancelMove,
    DeleteGroup,
    DeleteRoute,
    DeleteRouter,
    DeleteTopic,
    PurgeTopic,
    PutRecord,
    PutRoute,
    PutRouter,
    PutTopic,
    ResizeTopic,
    StartMove,
)
from kernel.api.model import (
    DEFAULT_GROUP,
    DEFAULT_TENANT,
    GroupOptions,
    Match,
    Route,
    RouterInfo,
    RouterOptions,
    TopicInfo,
    TopicOptions,
)
from kernel.api.moves import tasks
from kernel.broker.snapshots.snapshot import dump, load
from kernel.common.errors import Code, KernelError
from kernel.common.ids import METADATA_GROUP, RaftGroup
from kernel.common.placement import home_group
from kernel.remote.client import ClusterClient
from kernel.remote.definitions import administration_wire as wire
from kernel.remote.definitions.administration_service import AdministrationService
from kernel.remote.leader_calls.call_numbers import ADMINISTRATION, PEER_STORES
from kernel.remote.leader_calls.call_wire import WireError
from kernel.routing.destinations import Found
from tests.kernel.remote.cluster import gateway_of, running_stores
from tests.kernel.remote.local import peer_of
from tests.kernel.three_stores import Node, leader_of, until

T = DEFAULT_TENANT
GROUPS = {DEFAULT_GROUP: GroupOptions()}

CHANGES: list[Administration] = [
    PutTopic(T, "orders", TopicOptions(queues=2), GROUPS, must_be_new=True, reserved_name=True),
    DeleteTopic(T, "orders", if_unused=True),
    ResizeTopic(T, "orders", 4, by_key=True),
    ResizeTopic(T, "orders", 4, spread=True),
    PurgeTopic(T, "orders", "g", in_flight=True),
    PurgeTopic(T, "orders", "g", before_ms=1 << 41),
    DeleteGroup(T, "orders", "g"),
    PutRouter(T, "in", RouterOptions(match=Match.PATTERN), must_be_new=True),
    DeleteRouter(T, "in", if_unused=True),
    PutRoute(T, "in", Route(key="a/+", topic="orders", attributes=(("x", b"\xc0"),))),
    DeleteRoute(T, "in", Route(router="out", declaration=b"d")),
    PutRecord("users/ada", b"\0\xff", 7),
    PutRecord("users/ada", None),
    StartMove(T, "dead", "g", "orders", 10),
    StartMove(T, "dead", "g"),
    StartMove(T, "dead", "g", back_to=("orders", "others")),
    StartMove(T, "dead", "g", messages_max=7),
    CancelMove(T, "dead", "task"),
]


def put_topic(name: str, *, must_be_new: bool = False, queues: int = 1) -> PutTopic:
    return PutTopic(T, name, TopicOptions(queues=queues), GROUPS, must_be_new=must_be_new)


async def refused(client: ClusterClient, change: Administration) -> Code:
    with pytest.raises(KernelError) as caught:
        await client.administer(change)
    assert caught.value.message.isascii()
    return caught.value.code


def targets(client: ClusterClient, router: str) -> tuple[TopicInfo, ...]:
    """Topics that a message with key "k" would get to."""
    found = client.to_router(T, router, "k")
    assert isinstance(found, Found)
    return found.topics


def service_of(node: Node) -> AdministrationService:
    section = node.service._sections.of(wire.ADMINISTER)
    assert isinstance(section, AdministrationService)
    return section


async def ask(client: ClusterClient, sequence: int, change: Administration) -> object:
    """A question under an identity of its own."""
    group = wire.decides(client.groups, change)
    question = wire.encode_question(group, (4711, 1, sequence), change)
    _, result = await client.leaders.ask(group, wire.ADMINISTER, question, wire.decode_answer)
    return result


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[tuple[Node, ClusterClient]]:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        yield nodes[0], client


# --- Coding -------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", CHANGES, ids=lambda each: type(each).__name__)
def test_each_change_travels_unchanged(change: Administration) -> None:
    (payload,) = wire.encode_question(RaftGroup(3), (5, 1, 9), change)
    assert wire.decode_question(payload) == (RaftGroup(3), (5, 1, 9), change)


def test_every_kind_of_change_has_a_form() -> None:
    assert {type(each) for each in CHANGES} == set(wire._KINDS) == set(wire._CHANGES.values())


@pytest.mark.parametrize(
    "question",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode([1, [5, 1, 9]]),
        msgspec.msgpack.encode([1, [5, 1, 9], [99, "default", "x"]]),
        msgspec.msgpack.encode([1, [5, 1, 9], [3, "default", "x"]]),
        msgspec.msgpack.encode([1, [5, 1, 9], [3, "default", 1, "g"]]),
        msgspec.msgpack.encode([1, [5, 1, 9], [3, "default", "x" * 256, "g"]]),
        msgspec.msgpack.encode([1 << 16, [5, 1, 9], [3, "default", "x", "g"]]),
        msgspec.msgpack.encode([1, [0, 1, 9], [3, "default", "x", "g"]]),
        msgspec.msgpack.encode([1, [1 << 63, 1, 9], [3, "default", "x", "g"]]),
    ],
)
def test_what_is_no_question_is_not_taken_for_one(question: bytes) -> None:
    with pytest.raises(WireError):
        wire.decode_question(question)


@pytest.mark.parametrize(
    "result", [None, True, False, 0, 17, "task", KernelError(Code.IN_USE, "x")]
)
def test_results_travel_with_the_indexes_that_show_them(result: object) -> None:
    (payload,) = wire.encode_answer({RaftGroup(1): 8, METADATA_GROUP: 0}, result)
    indexes, found = wire.decode_answer(payload)
    assert indexes == {1: 8, 0: 0}
    assert repr(found) == repr(result)


def test_an_answer_that_is_none_is_an_error() -> None:
    with pytest.raises(WireError):
        wire.decode_answer(b"\x91\x00")


# --- One store ----------------------------------------------------------------------------------


async def test_look_ups_see_a_change_as_soon_as_it_has_returned(
    one: tuple[Node, ClusterClient],
) -> None:
    _, client = one
    for number in range(8):
        name, router = f"t{number}", f"r{number}"
        info = await client.administer(put_topic(name, queues=3))
        assert client.topic(T, name) is info
        made = await client.administer(PutRouter(T, router, RouterOptions()))
        assert isinstance(made, RouterInfo)
        assert client.router(T, router) == msgspec.structs.replace(made, version=ANY)
        route = Route(key="k", topic=name)
        await client.administer(PutRoute(T, router, route))
        assert targets(client, router) == (info,)
        assert await client.administer(DeleteRoute(T, router, route)) is True
        assert await client.administer(DeleteRoute(T, router, route)) is False
        await client.administer(PutRoute(T, router, route))
        assert await client.administer(DeleteTopic(T, name)) == 0
        assert client.topic(T, name) is None
        assert not targets(client, router)
        await client.administer(DeleteRouter(T, router))
        assert client.router(T, router) is None


async def test_groups_are_added_and_deleted(one: tuple[Node, ClusterClient]) -> None:
    _, client = one
    await client.administer(put_topic("orders", queues=2))
    added = PutTopic(T, "orders", TopicOptions(queues=2), {"audit": GroupOptions()})
    await client.administer(added)
    known = client.topic(T, "orders")
    assert known is not None
    assert set(known.groups) == {DEFAULT_GROUP, "audit"}
    await client.administer(DeleteGroup(T, "orders", "audit"))
    known = client.topic(T, "orders")
    assert known is not None
    assert set(known.groups) == {DEFAULT_GROUP}
    assert await refused(client, DeleteGroup(T, "orders", "audit")) is Code.NOT_FOUND


async def test_a_purge_tells_how_many_messages_it_has_dropped(
    one: tuple[Node, ClusterClient],
) -> None:
    _, client = one
    info = cast("TopicInfo", await client.administer(put_topic("orders")))
    peer = peer_of(client)
    await peer.publish(info, b"1", b"2", b"3")
    assert await client.administer(PurgeTopic(T, "orders", DEFAULT_GROUP)) == 3
    await peer.publish(info, b"4")
    assert await refused(client, DeleteTopic(T, "orders", if_empty=True)) is Code.IN_USE
    assert await client.administer(DeleteTopic(T, "orders")) == 1


async def test_records_have_versions_and_are_told_of(one: tuple[Node, ClusterClient]) -> None:
    _, client = one
    heard: list[tuple[str, tuple[int, bytes] | None]] = []
    client.watch_records(lambda key, record: heard.append((key, record)))
    version = await client.administer(PutRecord("users/ada", b"1"))
    assert client.records("users/") == {"users/ada": (version, b"1")}
    stale = PutRecord("users/ada", b"2", cast("int", version) + 1)
    assert await refused(client, stale) is Code.ALREADY_EXISTS
    await client.administer(PutRecord("users/ada", None, cast("int", version)))
    assert client.records("users/") == {}
    assert heard == [("users/ada", (version, b"1")), ("users/ada", None)]


async def test_messages_are_moved_by_a_task_of_the_store(one: tuple[Node, ClusterClient]) -> None:
    _, client = one
    source = cast("TopicInfo", await client.administer(put_topic("dead")))
    target = cast("TopicInfo", await client.administer(put_topic("orders")))
    await peer_of(client).publish(source, b"1", b"2")
    start = StartMove(T, "dead", DEFAULT_GROUP, "orders")
    task = await ask(client, 1, start)
    assert await ask(client, 1, start) == task
    await until(lambda: [each.moved for each in tasks(client.records("moves/"), T, "dead")] == [2])
    assert [each.id for each in tasks(client.records("moves/"), T, "dead")] == [task]

    async def ready() -> int:
        return (await client.statistics(target, DEFAULT_GROUP)).ready

    async with asyncio.timeout(10):
        while await ready() != 2:
            await asyncio.sleep(0.01)
    assert await refused(client, CancelMove(T, "dead", "another")) is Code.NOT_FOUND


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (DeleteTopic(T, "nowhere"), Code.NOT_FOUND),
        (PutTopic(T, "amq.x", TopicOptions(), GROUPS), Code.INVALID_ARGUMENT),
        (PutTopic(T, "x", TopicOptions(queues=0), GROUPS), Code.INVALID_ARGUMENT),
        (PutTopic(T, "x" * 256, TopicOptions(), GROUPS), Code.INVALID_ARGUMENT),
        (PutTopic(T, "x", TopicOptions(messages_max=1 << 64), GROUPS), Code.INVALID_ARGUMENT),
        (PutRoute(T, "nowhere", Route(topic="x")), Code.NOT_FOUND),
        (DeleteRouter(T, "weir.topics"), Code.NOT_ALLOWED),
        (StartMove(T, "nowhere", DEFAULT_GROUP), Code.NOT_FOUND),
    ],
)
async def test_refusals_come_back_as_they_are(
    one: tuple[Node, ClusterClient], change: Administration, code: Code
) -> None:
    _, client = one
    assert await refused(client, change) is code


async def test_a_refusal_shows_what_another_process_has_made(
    one: tuple[Node, ClusterClient],
) -> None:
    node, client = one
    for number in range(20):
        made = await node.opened.client.administer(put_topic(f"t{number}"))
        code = await refused(client, put_topic(f"t{number}", must_be_new=True))
        assert code is Code.ALREADY_EXISTS
        assert client.topic(T, f"t{number}") == made


async def test_what_lives_in_the_memory_of_the_store_is_locked(
    one: tuple[Node, ClusterClient],
) -> None:
    node, client = one
    transient = PutTopic(T, "private", TopicOptions(durable=False), GROUPS)
    await node.opened.client.administer(transient)
    assert await refused(client, put_topic("private")) is Code.LOCKED
    assert await refused(client, DeleteTopic(T, "private")) is Code.LOCKED


# --- Asked again --------------------------------------------------------------------------------


def become_the_next_leader(node: Node, *, from_snapshots: bool) -> None:
    """It has no answers, but knows the group's state: as applied here, or from a snapshot."""
    service_of(node)._answers.clear()
    for group in node.opened.store.groups if from_snapshots else ():
        state = node.opened.store.replica(group).state
        restored = load(list(dump(state))).clients
        state.clients.clear()
        state.clients.update(restored)


@pytest.mark.parametrize("leader", ["same", "next", "next, from a snapshot"])
async def test_a_question_asked_again_is_answered_as_before(
    one: tuple[Node, ClusterClient], leader: str
) -> None:
    node, client = one
    new_topic = put_topic("orders", must_be_new=True)
    new_router = PutRouter(T, "in", RouterOptions(), must_be_new=True)
    route = Route(key="k", topic="orders")
    steps: list[Administration] = [
        new_topic,
        PutTopic(T, "orders", TopicOptions(), {"audit": GroupOptions()}),
        DeleteGroup(T, "orders", "audit"),
        new_router,
        PutRoute(T, "in", route),
        DeleteRoute(T, "in", route),
        PutRecord("users/ada", b"1", 0),
        DeleteRouter(T, "in"),
        DeleteTopic(T, "orders"),
    ]
    for sequence, change in enumerate(steps, 1):
        first = await ask(client, sequence, change)
        assert not isinstance(first, KernelError), change
        if leader != "same":
            become_the_next_leader(node, from_snapshots=leader != "next")
        assert await ask(client, sequence, change) == first


@pytest.mark.parametrize("from_snapshots", [False, True])
async def test_a_refusal_asked_again_stays_one(
    one: tuple[Node, ClusterClient], *, from_snapshots: bool
) -> None:
    node, client = one
    await ask(client, 1, PutRecord("users/ada", b"1", 0))
    for _ in range(2):
        answer = await ask(client, 2, PutRecord("users/ada", b"2", 0))
        assert isinstance(answer, KernelError)
        assert answer.code is Code.ALREADY_EXISTS
        become_the_next_leader(node, from_snapshots=from_snapshots)


async def test_a_topic_that_was_made_and_is_gone_again_is_not_found(
    one: tuple[Node, ClusterClient],
) -> None:
    node, client = one
    await ask(client, 1, put_topic("orders"))
    await ask(client, 2, DeleteTopic(T, "orders"))
    become_the_next_leader(node, from_snapshots=True)
    answer = await ask(client, 1, put_topic("orders"))
    assert isinstance(answer, KernelError)
    assert answer.code is Code.NOT_FOUND


async def test_a_deletion_asked_again_spares_what_was_made_since(
    one: tuple[Node, ClusterClient],
) -> None:
    node, client = one
    await client.administer(put_topic("orders"))
    assert await ask(client, 1, DeleteTopic(T, "orders")) == 0
    made = await client.administer(put_topic("orders"))
    service_of(node)._answers.clear()
    assert await ask(client, 1, DeleteTopic(T, "orders")) == 0
    await client.administer(PutRecord("anything", b""))
    assert client.topic(T, "orders") is made


async def test_a_change_goes_on_when_its_connection_breaks(
    one: tuple[Node, ClusterClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    node, client = one
    service, store_client = service_of(node), node.opened.client
    begun, go = asyncio.Event(), asyncio.Event()
    carry_out = store_client.administer_for

    async def slowly(
        identity: tuple[int, int, int], change: Administration
    ) -> tuple[object, dict[RaftGroup, int]]:
        begun.set()
        await go.wait()
        return await carry_out(identity, change)

    monkeypatch.setattr(store_client, "administer_for", slowly)
    made = asyncio.create_task(client.administer(put_topic("orders", must_be_new=True)))
    await begun.wait()
    for channel in list(node.service._gateways):
        channel.close("as a test wants it")
    await until(lambda: service.figures.repeated)
    go.set()
    assert await made is client.topic(T, "orders")
    assert service.figures.asked == 1


async def test_too_many_changes_at_once_wait(
    one: tuple[Node, ClusterClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    node, client = one
    service = service_of(node)
    monkeypatch.setattr(service, "_running_max", 1)
    await asyncio.gather(*(client.administer(put_topic(f"t{each}")) for each in range(4)))
    assert len(client.topics(T)) == 4
    assert service.figures.over_running


async def test_a_store_forgets_answers_beyond_a_number(
    one: tuple[Node, ClusterClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    node, client = one
    monkeypatch.setattr("kernel.remote.definitions.administration_service.ANSWERS_MAX", 2)
    for number in range(4):
        await client.administer(PutRecord(f"k/{number}", b""))
    assert len(service_of(node)._answers) == 2


@pytest.mark.parametrize("method", [*ADMINISTRATION, *PEER_STORES])
async def test_garbage_closes_the_connection(one: tuple[Node, ClusterClient], method: int) -> None:
    _, client = one
    channel = client.leaders.channel_to(METADATA_GROUP)
    assert channel is not None
    channel.call(method, [b"\xc1"], lambda _answer: None, 1_000)
    await until(lambda: channel.is_closed)
    await client.administer(PutRecord("still", b"served"))


async def test_a_question_for_the_wrong_group_is_refused(one: tuple[Node, ClusterClient]) -> None:
    _, client = one
    home = home_group(client.groups, T, "orders")
    other = next(each for each in client.groups if each != home)
    question = wire.encode_question(other, (4711, 1, 1), put_topic("orders"))
    with pytest.raises(KernelError) as caught:
        await client.leaders.ask(other, wire.ADMINISTER, question, wire.decode_answer)
    assert caught.value.code is Code.INVALID_ARGUMENT


# --- Three stores -------------------------------------------------------------------------------


async def test_changes_go_on_when_the_leader_of_their_group_dies(tmp_path: Path) -> None:
    async with running_stores(tmp_path, 3, 1) as nodes, gateway_of(nodes) as client:
        home = client.groups[0]
        first = await ask(client, 1, put_topic("before", must_be_new=True))
        assert isinstance(first, TopicInfo)
        leader = leader_of(nodes, home)
        assert leader is not None
        dying = asyncio.create_task(leader.kill())
        made = await client.administer(put_topic("after", must_be_new=True))
        await dying
        assert client.topic(T, "after") is made
        assert await ask(client, 1, put_topic("before", must_be_new=True)) == first
