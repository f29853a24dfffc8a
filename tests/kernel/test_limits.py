"""Sizes of messages and names that are the server's: what happens at the limit and beyond it."""

from __future__ import annotations

import pytest

from kernel.api.client import PutRoute, PutRouter, PutTopic
from kernel.api.message import BODY_BYTES_MAX, PROPERTIES_BYTES_MAX
from kernel.api.model import (
    DEFAULT_GROUP,
    DEFAULT_TENANT,
    GroupOptions,
    Match,
    Route,
    RouterOptions,
    TopicInfo,
    TopicOptions,
)
from kernel.common.errors import Code, KernelError
from kernel.common.limits import RESERVED_PREFIXES
from tests.simulator.peer import Draft, Sent
from tests.simulator.world import World, simulated

BOTH = pytest.mark.parametrize("durable", [True, False], ids=["durable", "transient"])


def codes(sent: Sent) -> dict[int, Code]:
    return {position: error.code for position, error in sent.failures.items()}


def ready(world: World, topic: TopicInfo) -> int:
    return world.figures(topic, DEFAULT_GROUP).ready


@BOTH
@simulated()
async def test_a_topics_limit_is_for_the_body(world: World, durable: bool) -> None:
    peer = world.peer()
    topic = await peer.topic("small", TopicOptions(durable=durable, message_bytes_max=100))
    sent = await peer.publish(
        topic,
        b"x" * 100,
        b"x" * 101,
        Draft(b"x" * 100, native=b"n" * 200),
        b"",
        b"x" * 1_000_000,
    )
    assert codes(sent) == {1: Code.TOO_LARGE, 4: Code.TOO_LARGE}
    assert sent.failures[1].message == (
        "topic small: a body of 101 bytes; at most 100 (message_bytes_max)"
    )
    assert ready(world, topic) == 3


@simulated()
async def test_a_batch_of_nothing_but_too_large_messages_is_answered(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("small", TopicOptions(message_bytes_max=1))
    assert codes(await peer.publish(topic, b"xx", b"xxx")) == {
        0: Code.TOO_LARGE,
        1: Code.TOO_LARGE,
    }


@simulated()
async def test_a_changed_limit_holds_for_the_next_look_up(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("t", TopicOptions(message_bytes_max=10))
    assert codes(await peer.publish(topic, b"x" * 11)) == {0: Code.TOO_LARGE}
    topic = await peer.topic("t", TopicOptions(message_bytes_max=11))
    assert not (await peer.publish(topic, b"x" * 11)).failures


@simulated()
async def test_each_topic_of_a_router_has_its_own_limit(world: World) -> None:
    peer = world.peer()
    small = await peer.topic("small", TopicOptions(message_bytes_max=10))
    large = await peer.topic("large")
    await world.client.administer(PutRouter(DEFAULT_TENANT, "news", RouterOptions(match=Match.ALL)))
    for name in ("small", "large"):
        await world.client.administer(PutRoute(DEFAULT_TENANT, "news", Route(topic=name)))
    to = world.client.to_router(DEFAULT_TENANT, "news", "")
    sent = await peer.publish(to, b"x" * 11, b"x" * 10)
    assert codes(sent) == {0: Code.TOO_LARGE}
    assert (ready(world, small), ready(world, large)) == (1, 2)


@simulated()
async def test_the_kernels_own_limits_bind_every_topic(world: World) -> None:
    peer = world.peer()
    plain = await peer.topic("plain")
    several = await peer.topic("several", TopicOptions(queues=2))
    for topic in (plain, several):
        sent = await peer.publish(
            topic,
            b"x" * BODY_BYTES_MAX,
            b"x" * (BODY_BYTES_MAX + 1),
            Draft(b"", native=b"n" * PROPERTIES_BYTES_MAX),
            Draft(b"", native=b"n" * (PROPERTIES_BYTES_MAX + 1)),
        )
        assert codes(sent) == {1: Code.TOO_LARGE, 3: Code.TOO_LARGE}
        assert ready(world, topic) == 2


@pytest.mark.parametrize("size", [0, BODY_BYTES_MAX + 1])
@simulated()
async def test_a_limit_out_of_bounds_is_refused(world: World, size: int) -> None:
    with pytest.raises(KernelError, match="message_bytes_max must be 1 to 16777216") as failure:
        await world.peer().topic("t", TopicOptions(message_bytes_max=size))
    assert failure.value.code is Code.INVALID_ARGUMENT


# --- Names ----------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", RESERVED_PREFIXES)
@simulated()
async def test_only_the_server_makes_names_that_are_reserved(world: World, prefix: str) -> None:
    name = prefix + "x"
    client = world.client
    groups = {DEFAULT_GROUP: GroupOptions()}
    changes: list[tuple[PutTopic | PutRouter, PutTopic | PutRouter]] = [
        (
            PutTopic(DEFAULT_TENANT, name, TopicOptions(), groups),
            PutTopic(DEFAULT_TENANT, name, TopicOptions(), groups, reserved_name=True),
        ),
        (
            PutRouter(DEFAULT_TENANT, name, RouterOptions()),
            PutRouter(DEFAULT_TENANT, name, RouterOptions(), reserved_name=True),
        ),
    ]
    for by_client, by_server in changes:
        with pytest.raises(KernelError, match="reserved") as failure:
            await client.administer(by_client)
        assert failure.value.code is Code.INVALID_ARGUMENT
        await client.administer(by_server)
        await client.administer(by_client)  # to change what is there makes no name


@simulated()
async def test_names_that_only_contain_a_reserved_word_are_free(world: World) -> None:
    for name in ("x__", "_x", "amqp.x", "weirdo", "a$", "dlq.group", "amq"):
        await world.peer().topic(name)
