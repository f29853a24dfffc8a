"""Whose a session is, who may use which client id, and what a shared subscription takes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import cast

import pytest

from adapters.mqtt.access.sign_in import StoreSignIn
from adapters.mqtt.codec.packets import Connack, Disconnect
from adapters.mqtt.codec.reason_codes import ReasonCode
from kernel.api.client import Client, PutTopic
from kernel.api.model import DEFAULT_GROUP, DEFAULT_TENANT, GroupOptions, TopicOptions
from kernel.api.tree import SubscriberSpec, Subscription
from tests.adapters.mqtt.broker import Broker, WireClient, serving, serving_over
from tests.adapters.people import PASSWORD, People
from tests.kernel.remote import cluster

NOT_ALLOWED = {5: int(ReasonCode.NOT_AUTHORIZED), 4: 5}
KEPT = 600


@pytest.fixture
def people() -> People:
    everything = ("allow publish,consume tree:# group:* topic:*",)
    return People(ann=everything, bob=("allow publish tree:orders",), eve=everything)


@pytest.fixture
async def broker(tmp_path: Path, people: People) -> AsyncIterator[Broker]:
    async with serving(tmp_path / "data", sign_in=StoreSignIn(people)) as running:
        yield running


@pytest.fixture(params=[1, 2])
async def gateways(
    request: pytest.FixtureRequest, tmp_path: Path, people: People
) -> AsyncIterator[tuple[Broker, Broker]]:
    """Where two clients connect: one node, or two gateways of a cluster."""
    sign_in = StoreSignIn(people)
    async with AsyncExitStack() as stack:
        if request.param == 1:
            one = await stack.enter_async_context(serving(tmp_path / "data", sign_in=sign_in))
            yield one, one
            return
        nodes = await stack.enter_async_context(cluster.running_stores(tmp_path, 1))
        pair = await stack.enter_async_context(cluster.two_gateways_of(nodes))
        first, second = [
            await stack.enter_async_context(serving_over(cast("Client", each), sign_in=sign_in))
            for each in pair
        ]
        yield first, second


def login(name: str) -> tuple[str, bytes]:
    return name, PASSWORD


async def kept(broker: Broker, name: str, user: str, level: int = 5) -> WireClient:
    expiry = KEPT if level == 5 else None
    return await broker.connect(name, level, clean=False, expiry=expiry, login=login(user))


async def refused(
    broker: Broker, client_id: str, user: str, level: int = 5, *, clean: bool, expiry: int | None
) -> None:
    client = await broker.dial(level)
    answer = await client.connect(
        client_id, clean=clean, expiry=expiry if level == 5 else None, login=login(user)
    )
    assert isinstance(answer, Connack)
    assert answer.reason_code == NOT_ALLOWED[level]
    assert await client.closed() == []


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("clean", [False, True])
async def test_another_users_session_is_refused_and_the_live_victim_stays(
    gateways: tuple[Broker, Broker], level: int, clean: bool
) -> None:
    here, there = gateways
    victim = await kept(here, "device-1", "ann")
    await victim.subscribe("secret/#", qos=1)
    for expiry in (None, KEPT):
        await refused(there, "device-1", "bob", level, clean=clean, expiry=expiry)
    giver = await there.connect("giver", login=login("eve"))
    await giver.publish("secret/1", b"x", qos=1)
    assert (await victim.take()).payload == b"x"
    assert here.counters.taken_over == there.counters.taken_over == 0
    assert there.counters.not_owner == 2


@pytest.mark.parametrize("clean", [False, True])
async def test_another_users_kept_session_is_refused_while_the_victim_is_away(
    gateways: tuple[Broker, Broker], clean: bool
) -> None:
    here, there = gateways
    victim = await kept(here, "device-1", "ann")
    await victim.subscribe("secret/#", qos=1)
    await victim.disconnect()
    giver = await there.connect("giver", login=login("eve"))
    await giver.publish("secret/1", b"x", qos=1)
    for expiry in (None, KEPT):
        await refused(there, "device-1", "eve", clean=clean, expiry=expiry)
    again = await kept(there, "device-1", "ann")
    assert again.connack is not None
    assert again.connack.session_present
    assert (await again.take()).payload == b"x"


async def test_a_session_of_a_connection_is_its_users_until_that_ends(
    gateways: tuple[Broker, Broker],
) -> None:
    here, there = gateways
    victim = await here.connect("device-1", login=login("ann"))
    await refused(there, "device-1", "bob", clean=True, expiry=None)
    await refused(there, "device-1", "bob", clean=False, expiry=KEPT)
    await victim.ping()
    again = await there.connect("device-1", login=login("ann"))
    [goodbye] = await victim.closed()
    assert isinstance(goodbye, Disconnect)
    assert goodbye.reason_code == ReasonCode.SESSION_TAKEN_OVER
    await again.disconnect()
    await there.until_connections(0)
    bob = await there.connect("device-1", login=login("bob"))
    assert bob.connack is not None
    assert bob.connack.reason_code == 0


class Nobody:
    """An older build's connection."""

    def taken_over(self, subscriber: object) -> None:
        """Nothing happens."""


async def test_a_session_that_an_older_build_kept_becomes_whose_who_has_the_rights_to_all_of_it(
    broker: Broker,
) -> None:
    spec = SubscriberSpec(DEFAULT_TENANT, "device-1", expiry_ms=None)
    old = await broker.kernel.tree.open(spec, Nobody())
    await old.subscribe(Subscription("secret/#"), b"\1\0\0\0\0")
    await old.close(will=False)
    for clean in (False, True):
        await refused(broker, "device-1", "bob", clean=clean, expiry=KEPT)
    ann = await kept(broker, "device-1", "ann")
    assert ann.connack is not None
    assert ann.connack.session_present
    await ann.disconnect()
    await refused(broker, "device-1", "eve", clean=False, expiry=KEPT)


async def test_an_administrator_drops_a_session_and_the_client_id_is_free(broker: Broker) -> None:
    victim = await kept(broker, "device-1", "ann")
    await victim.subscribe("a", qos=1)
    assert await broker.kernel.tree.drop(DEFAULT_TENANT, "device-1")
    [goodbye] = await victim.closed()
    assert goodbye.reason_code == ReasonCode.SESSION_TAKEN_OVER
    eve = await kept(broker, "device-1", "eve")
    assert eve.connack is not None
    assert not eve.connack.session_present


# --- Client ids -----------------------------------------------------------------------------


@pytest.mark.parametrize("level", [4, 5])
async def test_policies_bind_client_ids(broker: Broker, people: People, level: int) -> None:
    people.may("bob", "allow publish,consume tree:# client:${username}:*")
    await refused(broker, "squatted", "bob", level, clean=True, expiry=None)
    await refused(broker, "bobby:1", "bob", level, clean=True, expiry=None)
    client = await broker.connect("bob:1", level, login=login("bob"))
    assert client.connack is not None
    assert client.connack.reason_code == 0
    people.may("bob", "allow * *", "deny * client:bob:*")
    await refused(broker, "bob:2", "bob", level, clean=True, expiry=None)


async def test_a_client_id_that_the_server_chooses_needs_no_right(
    broker: Broker, people: People
) -> None:
    people.may("bob", "allow publish,consume tree:# client:${username}:*")
    client = await broker.connect("", login=login("bob"))
    assert client.connack is not None
    assert client.connack.reason_code == 0


# --- Kept subscriptions ---------------------------------------------------------------------


@pytest.mark.parametrize("qos", [0, 1])
async def test_kept_subscriptions_are_checked_again_on_resume(
    broker: Broker, people: People, qos: int
) -> None:
    ann = await kept(broker, "device-1", "ann")
    await ann.subscribe("secret/#", qos=qos)
    await ann.subscribe("news/#", qos=qos)
    await ann.subscribe("$share/g/secret/#", qos=1)
    await ann.disconnect()
    people.may("ann", "allow consume tree:news/# group:*")
    again = await kept(broker, "device-1", "ann")
    assert again.connack is not None
    assert again.connack.session_present
    giver = await broker.connect("giver", login=login("eve"))
    await giver.publish("secret/1", b"no", qos=1)
    await giver.publish("news/1", b"yes", qos=1)
    assert (await again.take()).payload == b"yes"
    await again.nothing()
    assert broker.counters.withheld == 2
    for code in (ReasonCode.SUCCESS, ReasonCode.NO_SUBSCRIPTION_EXISTED):
        assert (await again.unsubscribe("secret/#")).reason_codes == (code,)


async def test_what_is_kept_for_a_subscription_is_not_lost_if_the_right_comes_back(
    broker: Broker, people: People
) -> None:
    ann = await kept(broker, "device-1", "ann")
    await ann.subscribe("secret/#", qos=1)
    await ann.disconnect()
    people.may("ann", "allow consume tree:news/#")
    again = await kept(broker, "device-1", "ann")
    giver = await broker.connect("giver", login=login("eve"))
    await giver.publish("secret/1", b"x", qos=1)
    await again.nothing()
    await again.disconnect()
    people.may("ann", "allow consume tree:#")
    last = await kept(broker, "device-1", "ann")
    assert (await last.take()).payload == b"x"


# --- Shared subscriptions, and topics that are part of the tree -------------------------------


async def test_a_shared_subscription_needs_its_group(broker: Broker, people: People) -> None:
    people.may("bob", "allow consume tree:# group:mine-*")
    client = await broker.connect("c", login=login("bob"))
    assert await client.subscribe("$share/mine-1/a", qos=1) == (1,)
    assert await client.subscribe("$share/theirs/a", qos=1) == (ReasonCode.NOT_AUTHORIZED,)


async def test_a_share_of_a_topic_in_the_tree_needs_the_tree_too(
    broker: Broker, people: People
) -> None:
    await broker.kernel.administer(
        PutTopic(DEFAULT_TENANT, "orders", TopicOptions(tree=True), {DEFAULT_GROUP: GroupOptions()})
    )
    people.may("bob", "allow consume topic:orders group:g")
    client = await broker.connect("c", login=login("bob"))
    assert await client.subscribe("$share/g/orders", qos=1) == (ReasonCode.NOT_AUTHORIZED,)
    people.may("bob", "allow consume topic:orders group:g tree:orders/#")
    assert await client.subscribe("$share/g/orders", qos=1) == (1,)
    people.may("bob", "allow consume topic:orders tree:orders/#")
    assert await client.subscribe("$share/h/orders", qos=1) == (ReasonCode.NOT_AUTHORIZED,)
