"""Exchanges and bindings over the management API."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from adapters.amqp.codec import spec
from adapters.amqp.codec.fields import decode_table
from adapters.amqp.management.pages import Page
from adapters.amqp.management.queues import flag_of, found_queue, plain_table, table_of
from adapters.amqp.management.requests import (
    INSPECT_ROUTER,
    INSPECT_TOPIC,
    Answer,
    Asked,
    bad_request,
    not_found,
)
from adapters.amqp.names import PREDECLARED, amqp_key
from adapters.amqp.topology.exchanges import ExchangeDeclaration, predeclared
from kernel.api.model import TOPICS_ROUTER, Route, RouterInfo

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from adapters.amqp.caller import Caller

DEFAULT: Final = "amq.default"
"""How paths name the exchange without a name."""

NO_KEY: Final = "~"
"""How `properties_key` says an empty routing key."""


async def list_exchanges(asked: Asked) -> Answer:
    """All that the caller may inspect; those that every virtual host has are always there."""
    page = Page(asked.query)
    rows = []
    for caller, host in asked.hosts():
        rows.append(_row("", "direct", host))
        rows += await declared_in(asked, caller)
    wanted = page.sorted_by([each for each in rows if page.wanted(each["name"])])
    some, made = page.cut(wanted, len(rows))
    return Answer(200, made(some))


async def declared_in(asked: Asked, caller: Caller) -> list[dict[str, Any]]:
    """The exchanges of a virtual host that have a name, by that."""
    names = dict.fromkeys((*PREDECLARED, *asked.broker.client.routers(caller.tenant)))
    seen = (each for each in sorted(names) if caller.rights.allows(INSPECT_ROUTER, each))
    return [await _exchange(asked, caller, name) for name in seen]


async def show_exchange(asked: Asked) -> Answer:
    """One exchange."""
    caller, name = await _found(asked)
    row = await _exchange(asked, caller, name) if name else _row("", "direct", caller.virtual_host)
    return Answer(200, {**row, "incoming": [], "outgoing": []})


async def declare_exchange(asked: Asked) -> Answer:
    """exchange.declare: 201 if it is new, 204 if it is so already."""
    caller, name = asked.host(), asked.names["name"]
    body = asked.read(["type"])
    declarations = asked.broker.declarations
    is_new = await declarations.router(caller.tenant, name) is None
    flags = {each: flag_of(body, each, each == "durable") for each in _FLAGS}
    method = spec.ExchangeDeclare(0, name, str(body["type"]), arguments=table_of(body), **flags)
    await declarations.declare_exchange(caller, method)
    return Answer(201 if is_new else 204)


_FLAGS: Final = ("durable", "auto_delete", "internal")


async def delete_exchange(asked: Asked) -> Answer:
    """exchange.delete; 404 if there is none."""
    caller, name = await _found(asked)
    method = spec.ExchangeDelete(0, name, if_unused=asked.query.get("if-unused") == "true")
    await asked.broker.declarations.delete_exchange(caller, method)
    return Answer(204)


async def _found(asked: Asked) -> tuple[Caller, str]:
    caller, name = asked.host(), asked.names["name"]
    if name in {"", DEFAULT}:
        return caller, ""
    is_there = name in PREDECLARED or await _router(asked, caller, name) is not None
    if not is_there or not caller.rights.allows(INSPECT_ROUTER, name):
        raise not_found()
    return caller, name


async def _router(asked: Asked, caller: Caller, name: str) -> RouterInfo | None:
    client = asked.broker.client
    await client.load(caller.tenant, topics=(), routers=(name,))
    return client.router(caller.tenant, name)


async def _exchange(asked: Asked, caller: Caller, name: str) -> dict[str, Any]:
    router = await _router(asked, caller, name)
    if router is None:
        return _row(name, predeclared(name).type, caller.virtual_host)
    declared = ExchangeDeclaration.of(router)
    return {
        **_row(name, declared.type, caller.virtual_host),
        "durable": declared.durable,
        "auto_delete": declared.auto_delete,
        "internal": declared.internal,
        "arguments": plain_table(declared.arguments),
    }


def _row(name: str, kind: str, host: str) -> dict[str, Any]:
    return {
        "name": name,
        "vhost": host,
        "type": kind,
        "durable": True,
        "auto_delete": False,
        "internal": False,
        "arguments": {},
        "policy": None,
    }


# --- Bindings -----------------------------------------------------------------------------------


async def list_bindings(asked: Asked) -> Answer:
    """All between what the caller may inspect; without those of the exchange without a name, which
    every queue has.
    """
    rows = []
    for caller, _ in asked.hosts():
        rows += await bindings_in(asked, caller)
    return _listed(asked, rows)


async def bindings_in(asked: Asked, caller: Caller) -> list[dict[str, Any]]:
    """The bindings of a virtual host."""
    rows = []
    for name in asked.broker.client.routers(caller.tenant):
        rows += [each async for each in _from(asked, caller, name)]
    return rows


async def list_of_source(asked: Asked) -> Answer:
    """Those from an exchange."""
    caller, name = await _found(asked)
    return _listed(asked, [each async for each in _from(asked, caller, name)])


async def list_of_queue(asked: Asked) -> Answer:
    """Those to a queue."""
    topic, _ = await found_queue(asked)
    caller = asked.host()
    rows = [_binding(caller, "", topic.name, "queue", topic.name, {})]
    rows += await _to(asked, caller, "queue", topic.name)
    return _listed(asked, rows)


async def list_of_destination(asked: Asked) -> Answer:
    """Those to an exchange."""
    caller, name = await _found(asked)
    return _listed(asked, await _to(asked, caller, "exchange", name))


async def list_between(asked: Asked) -> Answer:
    """Those from an exchange to a queue or an exchange."""
    caller, kind, target = asked.host(), _kind(asked), asked.names["target"]
    rows = [
        each
        async for each in _from(asked, caller, asked.names["source"])
        if (each["destination_type"], each["destination"]) == (kind, target)
    ]
    return _listed(asked, rows)


async def show_binding(asked: Asked) -> Answer:
    """One of them, by its `properties_key`."""
    return Answer(200, await _one(asked))


async def bind(asked: Asked) -> Answer:
    """queue.bind or exchange.bind: 201, and where it is."""
    caller, body = asked.host(), asked.read()
    key, arguments = body.get("routing_key", ""), table_of(body)
    if not isinstance(key, str):
        raise bad_request("routing_key is text")
    source, target = asked.names["source"], asked.names["target"]
    declarations = asked.broker.declarations
    if _kind(asked) == "queue":
        await declarations.bind_queue(
            caller, spec.QueueBind(0, target, source, key, arguments=arguments), ""
        )
    else:
        await declarations.bind_exchange(
            caller, spec.ExchangeBind(0, target, source, key, arguments=arguments)
        )
    made = _properties_key(key, plain_table(arguments))
    return Answer(201, location=f"{quote(target, safe='')}/{made}")


async def unbind(asked: Asked) -> Answer:
    """queue.unbind or exchange.unbind; 404 if there is no such binding."""
    row, caller = await _one(asked), asked.host()
    arguments = table_of(row)
    source, target, key = row["source"], row["destination"], row["routing_key"]
    declarations = asked.broker.declarations
    if row["destination_type"] == "queue":
        await declarations.bind_queue(
            caller, spec.QueueUnbind(0, target, source, key, arguments), ""
        )
    else:
        await declarations.bind_exchange(
            caller, spec.ExchangeUnbind(0, target, source, key, arguments=arguments)
        )
    return Answer(204)


def _listed(asked: Asked, rows: list[dict[str, Any]]) -> Answer:
    page = Page(asked.query)
    some, made = page.cut(page.sorted_by(rows), len(rows))
    return Answer(200, made(some))


def _kind(asked: Asked) -> str:
    return "queue" if asked.names["kind"] == "q" else "exchange"


async def _one(asked: Asked) -> dict[str, Any]:
    caller, kind, target = asked.host(), _kind(asked), asked.names["target"]
    async for each in _from(asked, caller, asked.names["source"]):
        found = each["destination_type"], each["destination"], each["properties_key"]
        if found[:2] == (kind, target) and asked.names["key"] in {found[2], each["routing_key"]}:
            return each
    raise not_found()


async def _to(asked: Asked, caller: Caller, kind: str, name: str) -> list[dict[str, Any]]:
    return [
        each
        for source in asked.broker.client.routers(caller.tenant)
        async for each in _from(asked, caller, source)
        if (each["destination_type"], each["destination"]) == (kind, name)
    ]


async def _from(asked: Asked, caller: Caller, source: str) -> AsyncIterator[dict[str, Any]]:
    """The bindings from an exchange whose ends the caller may inspect."""
    if not caller.rights.allows(INSPECT_ROUTER, source):
        return
    router = await _router(asked, caller, source)
    for route in router.routes if router is not None else ():
        kind, target, number = (
            ("queue", route.topic, INSPECT_TOPIC)
            if route.topic is not None
            else ("exchange", route.router or "", INSPECT_ROUTER)
        )
        if caller.rights.allows(number, target):
            key = route.key if source == TOPICS_ROUTER else amqp_key(route.key)
            yield _binding(caller, source, target, kind, key, _arguments(route))


def _arguments(route: Route) -> dict[str, Any]:
    data = route.declaration
    if data:
        return plain_table(decode_table(data, 0, len(data))[0])
    return {name: msgspec.msgpack.decode(value) for name, value in route.attributes}


def _binding(
    caller: Caller, source: str, target: str, kind: str, key: str, arguments: dict[str, Any]
) -> dict[str, Any]:
    return {
        "source": source,
        "vhost": caller.virtual_host,
        "destination": target,
        "destination_type": kind,
        "routing_key": key,
        "arguments": arguments,
        "properties_key": _properties_key(key, arguments),
    }


def _properties_key(key: str, arguments: dict[str, Any]) -> str:
    """What names a binding among those between two ends, in a path."""
    told = quote(key, safe="") or NO_KEY
    if not arguments:
        return told
    said = msgspec.json.encode(arguments, enc_hook=str, order="sorted")
    return f"{told}~{_digest(said)}"


def _digest(data: bytes) -> str:
    """Some characters that tell arguments apart: the same for the same arguments."""
    return blake2b(data, digest_size=8).hexdigest()
