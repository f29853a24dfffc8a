"""MQTT's rows. A login says its tenant itself: nobody can name another one's names."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from adapters.mqtt.codec.packets import (
    Connack,
    Disconnect,
    FilterOptions,
    Suback,
    Subscribe,
    Will,
)
from adapters.mqtt.codec.properties import Properties
from tests.adapters.mqtt.broker import WireClient
from tests.rights.rows import Row
from tests.rights.site import PASSWORD, ROOT, Actor, Refused

NOT_AUTHORIZED = 0x87

_PUBLISH, _SUBSCRIBE = "the rights of PUBLISH", "the rights of SUBSCRIBE"

NO_RIGHT_OF_ITS_OWN = {
    "CONNECT, takeover": "by the session's own user",
    "CONNECT, user name and password": "a login is not a right",
    "DISCONNECT": "about the connection",
    "PINGREQ and keep alive": "about the connection",
    "delivery QoS 1": _SUBSCRIBE,
    "delivery QoS 2": _SUBSCRIBE,
    "SUBSCRIBE, overlapping filters": _SUBSCRIBE,
    "UNSUBSCRIBE": "of what the session has",
    "will delay": "the rights of the will",
    "message expiry": _PUBLISH,
    "message properties": _PUBLISH,
    "topic aliases": _PUBLISH,
    "flow control": "about the connection",
    "bridges": "clients as any other; what one tells of its own connection is kept nowhere",
    "WebSocket": "the same packets in frames",
}


async def _dial(who: Actor) -> WireClient:
    port = who.site.node.listeners["mqtt.tcp"]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    return WireClient(reader, writer, 5)


async def connected(
    who: Actor, login: str = "", client_id: str = "", will: Will | None = None
) -> WireClient:
    """A connection of somebody, who is refused or let in."""
    client = await _dial(who)
    login = login or who.login
    chosen = client_id or f"{who.name}-{login}"
    answer = await client.connect(chosen, login=(login, PASSWORD.encode()), will=will)
    assert isinstance(answer, Connack)
    if answer.reason_code == NOT_AUTHORIZED:
        client.writer.close()
        raise Refused("CONNACK")
    assert answer.reason_code == 0, answer
    return client


def on_one_connection(
    step: Callable[[Actor, WireClient], Awaitable[int | tuple[int, ...]]],
) -> Callable[[Actor], object]:
    """What a client does on the connection that it has; its reason codes are looked at."""

    async def run(who: Actor) -> None:
        if who.mqtt is None:
            who.mqtt = await connected(who)
        try:
            codes = await step(who, who.mqtt)
        except (EOFError, ConnectionError):
            # A connection whose user has lost a right that it uses may be closed for that.
            who.mqtt = None
            raise Refused("the connection was closed") from None
        for code in codes if isinstance(codes, tuple) else (codes,):
            if code == NOT_AUTHORIZED:
                raise Refused("0x87")
            assert code < 0x80, hex(code)

    return lambda who: who.run(run(who))


async def _publish(qos: int, who: Actor, client: WireClient) -> int:
    code = await client.publish(who("{n}/secret"), qos=qos)
    assert code is not None
    return code


async def _publish_qos_0(who: Actor, client: WireClient) -> int:
    """Nobody answers; whether it was published, somebody who may read it knows."""
    reader = await connected(who, ROOT, f"{who.name}-reader")
    try:
        await reader.subscribe(who("{n}/#"), qos=0)
        await client.publish(who("{n}/secret"), qos=0)
        await client.ping()
        await reader.publish(who("{n}/end"), qos=0)
        first = await reader.take()
    finally:
        reader.writer.close()
    return 0 if first.topic.endswith("secret") else NOT_AUTHORIZED


async def _retain(who: Actor, client: WireClient) -> int:
    code = await client.publish(who("{n}/secret"), retain=True)
    assert code is not None
    return code


def subscribe(text: str) -> Callable[[Actor], object]:
    """One filter."""

    async def step(who: Actor, client: WireClient) -> tuple[int, ...]:
        client.send(Subscribe(client.packet_id(), (FilterOptions(who(text), 1),)))
        answer = await client.next()
        if isinstance(answer, Disconnect):  # the right to what it had subscribed to is gone already
            return (answer.reason_code,)
        assert isinstance(answer, Suback), answer
        return answer.reason_codes

    return on_one_connection(step)


def held(do: Callable[[Actor], object]) -> Callable[[Actor], Callable[[], bool]]:
    """A connection with what it has subscribed to, which ends with 0x87."""

    def begin(who: Actor) -> Callable[[], bool]:
        do(who)
        client = who.mqtt
        assert client is not None

        def has_ended() -> bool:
            try:
                who.run(client.ping())
            except (EOFError, ConnectionError, AssertionError):
                codes = [getattr(each, "reason_code", None) for each in client.packets]
                assert not codes or NOT_AUTHORIZED in codes, codes
                return True
            return False

        return has_ended

    return begin


def with_will(who: Actor) -> None:
    """A connection that leaves a will."""

    async def run() -> None:
        will = Will(who("{n}/gone"), b"x", 0, False, Properties())
        client = await connected(who, will=will)
        client.writer.close()

    who.run(run())


def connect(who: Actor) -> None:
    """A connection with a client id of the row's."""

    async def run() -> None:
        client = await connected(who, client_id=who("{n}"))
        client.writer.close()

    who.run(run())


def topic(*, tree: bool) -> Callable[[Actor], object]:
    """A topic of the kernel."""

    def do(who: Actor) -> None:
        who.site.admin("POST", "/topics", {"name": who("{n}"), "type": "work", "tree": tree})

    return do


def row(operation: str, needs: tuple[str, ...], do: Callable[[Actor], object]) -> Row:
    return Row(operation=operation, needs=needs, do=do, names_tenant=False)


def stay(who: Actor) -> None:
    """A connection with a client id of the row's, which is left open."""

    async def run() -> None:
        who.mqtt = await connected(who, client_id=who("{n}"))

    who.run(run())


def subscribing(needs: tuple[str, ...], text: str, **more: Any) -> Row:
    """A row of a filter."""
    do = subscribe(text)
    return Row(needs=needs, do=do, hold=held(do), names_tenant=False, **more)


PUBLISH, GROUP = ("publish tree:{n}/secret",), "consume group:{n}-g"

ROWS = [
    Row(
        operation="CONNECT",
        needs=("consume client:{n}",),
        do=connect,
        hold=held(stay),
        names_tenant=False,
    ),
    row("will", ("publish tree:{n}/gone",), with_will),
    row("PUBLISH QoS 0", PUBLISH, on_one_connection(_publish_qos_0)),
    row("PUBLISH QoS 1", PUBLISH, on_one_connection(partial(_publish, 1))),
    row("PUBLISH QoS 2", PUBLISH, on_one_connection(partial(_publish, 2))),
    row("retained messages", PUBLISH, on_one_connection(_retain)),
    subscribing(("consume tree:{n}/+/#",), "{n}/+/#", operation="SUBSCRIBE"),
    subscribing(("consume tree:$SYS/{n}/#",), "$SYS/{n}/#", operation="$SYS"),
    subscribing(
        ("consume tree:{n}/#", GROUP), "$share/{n}-g/{n}/#", operation="shared subscriptions"
    ),
    subscribing(
        ("consume topic:{n}", GROUP),
        "$share/{n}-g/{n}",
        operation="consumer groups of topics",
        before=topic(tree=False),
    ),
    subscribing(
        ("consume topic:{n}", GROUP, "consume tree:{n}/#"),
        "$share/{n}-g/{n}",
        operation="consumer groups of topics",
        way="a topic in the tree",
        before=topic(tree=True),
    ),
]
