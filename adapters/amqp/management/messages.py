"""One message in, some messages out, over the management API: for people and their scripts.

Durability: `routed` is answered once the message is on the disks of a majority, wherever it goes.
What is got is leased by token first, which the log holds; the answer comes once it is acked,
dead-lettered or given back.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import struct
from typing import TYPE_CHECKING, Any, Final

from adapters.amqp.channel.targets import Targets, may_be_for_nobody
from adapters.amqp.codec import properties
from adapters.amqp.codec.fields import Table
from adapters.amqp.codec.methods import short_string
from adapters.amqp.errors import INTERNAL_ERROR, AmqpError
from adapters.amqp.limits import LOAD_ATTEMPTS_MAX
from adapters.amqp.management.exchanges import DEFAULT
from adapters.amqp.management.queues import plain_table
from adapters.amqp.management.requests import Answer, Refused, bad_request
from adapters.amqp.messages.stamps import HEADER
from adapters.amqp.messages.translation import View, view
from adapters.amqp.origin import ORIGIN_BYTE
from adapters.amqp.topology.arguments import is_quorum
from adapters.http_limits import charge_publish, charge_receive, charge_received
from adapters.tree_rights import CONSUME_TOPIC, out_of_topic
from kernel.api.client import LeaseChange, LeaseVerb, ReceiveSpec
from kernel.api.message import HEADER_BYTES
from kernel.api.model import DEFAULT_GROUP
from kernel.common.errors import KernelError, NotLoaded

if TYPE_CHECKING:
    from adapters.amqp.caller import Caller
    from adapters.amqp.management.requests import Asked
    from kernel.api.client import Destinations, PublishBatch
    from kernel.api.model import TopicInfo

GET_COUNT_MAX: Final = 1_000
GET_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of bodies: the one that goes beyond is the last. An answer is in memory as a whole."""

GETS_MAX: Final = 4
"""At once, in a process: so many answers of that size are in memory."""

LEASE_MS: Final = 60_000
"""For reading them from the disk; then, if this process dies meanwhile, they are ready again."""

_VERBS: Final = {
    "ack_requeue_false": LeaseVerb.ACK,
    "ack_requeue_true": LeaseVerb.RELEASE,
    "reject_requeue_true": LeaseVerb.RELEASE,
    "reject_requeue_false": LeaseVerb.DEAD_LETTER,
}

_OCTETS: Final = {properties.DELIVERY_MODE, properties.PRIORITY}


# --- In -----------------------------------------------------------------------------------------


async def publish(asked: Asked) -> Answer:
    """basic.publish, confirmed: whether it went anywhere."""
    caller, name = asked.host(), asked.names["name"]
    body = asked.read(["properties", "routing_key", "payload", "payload_encoding"])
    exchange = "" if name == DEFAULT else name
    arguments = _short(exchange, "exchange") + _short(body["routing_key"], "routing_key") + b"\0"
    payload, block = _payload(body), _block(body["properties"])
    most = asked.broker.settings.body_bytes_max
    if len(payload) > most:
        raise bad_request(f"the payload has {len(payload)} bytes, {most} are allowed")
    stamp = asked.broker.stamps.of(block, caller.user_ids)
    sender = stamp.of_sender
    if sender is not None and sender.wants_reply:
        raise bad_request("a direct reply comes to a connection: there is none")
    copies = sender.copies if sender is not None else ()
    prefix, to = await _destinations(asked, caller, arguments, copies, block)
    if to is None:
        return Answer(200, {"routed": False})
    if sender is not None and sender.block is not None:
        block = sender.block
    native = prefix + block
    sent = _Sent()
    batch = asked.broker.client.batch(caller.session, sent)
    batch.comes_from(asked.by)
    wall_ms = asked.broker.clock.wall_ms()
    lengths = len(payload), len(native), len(stamp.ext)
    header = HEADER.pack(stamp.start, *lengths, *batch.uid(), wall_ms, stamp.end)
    batch.add(to, (header, stamp.ext, native, payload), HEADER_BYTES + sum(lengths))
    await charge_publish(asked.broker.limiter, asked.account(caller), batch, len(payload))
    asked.broker.client.submit(batch)
    await sent.done
    if batch.failures:
        raise batch.failures[0]
    return Answer(200, {"routed": not may_be_for_nobody(to) or batch.place(0) is not None})


class _Sent:
    """Waits for one batch."""

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def published(self, _batch: PublishBatch) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def _destinations(
    asked: Asked, caller: Caller, arguments: bytes, copies: tuple[str, ...], block: bytes
) -> tuple[bytes, Destinations | None]:
    """What the native block begins with, and where the message goes. Raises AmqpError 403, 404."""
    targets = Targets(asked.broker.client, caller)
    for _ in range(LOAD_ATTEMPTS_MAX):
        try:
            target = targets.find(arguments)
            to = targets.destinations(target, block) if target.is_by_attributes else target.to
            if copies:
                to = targets.with_copies(target, copies, to, block)
        except NotLoaded:
            exchange, key = targets.missing or _names(arguments)
            targets.missing = None
            await asked.broker.declarations.load(caller.tenant, exchange, key)
        else:
            return target.prefix, to
    raise AmqpError(INTERNAL_ERROR, "names could not be loaded")


def _names(arguments: bytes) -> tuple[str, str]:
    """Exchange and routing key of a publish."""
    key_at = 1 + arguments[0]
    return (
        arguments[1:key_at].decode("utf-8", "replace"),
        arguments[key_at + 1 : -1].decode("utf-8", "replace"),
    )


def _short(value: object, what: str) -> bytes:
    if not isinstance(value, str):
        raise bad_request(f"{what} is text")
    try:
        return short_string(value)
    except ValueError:  # also of a lone surrogate
        raise bad_request(f"{what} has more than 255 bytes, or is not UTF-8") from None


def _payload(body: dict[str, Any]) -> bytes:
    payload, encoding = body["payload"], body["payload_encoding"]
    if not isinstance(payload, str):
        raise bad_request("payload is text")
    if encoding == "string":
        return payload.encode("utf-8", "surrogatepass")
    if encoding != "base64":
        raise bad_request("payload_encoding is string or base64")
    try:
        return base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError):
        raise bad_request("the payload is not base64") from None


def _block(said: object) -> bytes:
    """A property block of what JSON says. Raises Refused 400."""
    if not isinstance(said, dict):
        raise bad_request("properties is no object")
    fields: list[bytes | None] = [None] * properties.PROPERTY_COUNT
    for name, value in said.items():
        if name not in properties.NAMES:
            raise bad_request(f"there is no property {name[:64]!r}")
        place = properties.NAMES.index(name)
        fields[place] = _property(place, name, value)
    return properties.join(fields)


def _property(place: int, name: str, value: object) -> bytes:
    if place == properties.HEADERS:
        if not isinstance(value, dict):
            raise bad_request("headers is no object")
        try:
            return properties.encode_headers(Table.of(value))
        except (TypeError, ValueError, struct.error, RecursionError) as error:
            raise bad_request(f"headers: {error}") from None
    if place not in _OCTETS and place != properties.TIMESTAMP:
        return _short(value, name)
    size = 1 if place in _OCTETS else 8
    if not isinstance(value, int) or not 0 <= value < 1 << 8 * size:
        raise bad_request(f"{name} is a number of {size} bytes")
    return value.to_bytes(size, "big")


# --- Out ----------------------------------------------------------------------------------------


async def get(asked: Asked) -> Answer:
    """basic.get, as often as there is something; then all of it is settled as was asked."""
    caller, name = asked.host(), asked.names["name"]
    body = asked.read(["count", "ackmode", "encoding"])
    count, verb, encoding = body["count"], _verb(body), body["encoding"]
    if isinstance(count, str) and count.isascii() and count.isdigit():  # as rabbitmqadmin sends it
        count = int(count[:9])
    if not isinstance(count, int) or not 1 <= count <= GET_COUNT_MAX:
        raise bad_request(f"count is 1 to {GET_COUNT_MAX}")
    if encoding not in {"auto", "base64"}:
        raise bad_request("encoding is auto or base64")
    truncate = body.get("truncate")
    if truncate is not None and (not isinstance(truncate, int) or truncate < 0):
        raise bad_request("truncate is a number of bytes")
    caller.require(CONSUME_TOPIC, "queue", name)
    topic = await asked.broker.declarations.queue(caller, name)
    if DEFAULT_GROUP not in topic.groups:
        raise bad_request(f"queue {name!r} has no consumers by AMQP yet")
    caller.require_all(out_of_topic(name, topic))
    limiter, account = asked.broker.limiter, asked.account(caller)
    await charge_receive(limiter, account, topic.name)
    under_way = asked.broker.under_way
    if under_way.gets >= GETS_MAX:
        raise Refused(503, "busy", f"{GETS_MAX} requests get messages already")
    under_way.gets += 1
    try:
        rows = await _got(asked, topic, count, verb, encoding == "base64", truncate)
    finally:
        under_way.gets -= 1
    charge_received(limiter, account, topic.name, [_slot_bytes(each) for each in rows])
    return Answer(200, rows)


def _slot_bytes(row: dict[str, Any]) -> int:
    """About as large as a message was."""
    return HEADER_BYTES + int(row["payload_bytes"])


def _verb(body: dict[str, Any]) -> LeaseVerb:
    mode = body["ackmode"]
    verb = _VERBS.get(mode) if isinstance(mode, str) else None
    if verb is None:
        raise bad_request(f"ackmode is one of {', '.join(_VERBS)}")
    return verb


async def _got(
    asked: Asked,
    topic: TopicInfo,
    count: int,
    verb: LeaseVerb,
    in_base64: bool,
    truncate: int | None,
) -> list[dict[str, Any]]:
    """Messages, settled together: what is given back at once would come again."""
    client = asked.broker.client
    spec = ReceiveSpec(topic, DEFAULT_GROUP, lease_ms=LEASE_MS, origin=ORIGIN_BYTE, by=asked.by)
    tells_attempt = is_quorum(topic)
    rows: list[dict[str, Any]] = []
    tokens: list[bytes] = []
    size = 0
    try:
        while len(rows) < count and size < GET_BYTES_MAX:
            received = await client.receive(spec)
            handed = received.deliveries
            if handed is None or not handed.offsets:
                break
            tokens += received.tokens
            attempts = handed.attempts or [1] * len(handed.offsets)
            for slot, attempt in zip(handed.slots, attempts, strict=True):
                seen = view(slot, topic.name, attempt, client.origins, tells_attempt=tells_attempt)
                rows.append(_row(seen, attempt, received.ready, in_base64, truncate))
                size += len(seen.body)
    except BaseException:
        await _settle(asked, topic, tokens, LeaseVerb.RELEASE)
        raise
    await _settle(asked, topic, tokens, verb)
    return rows


async def _settle(asked: Asked, topic: TopicInfo, tokens: list[bytes], verb: LeaseVerb) -> None:
    changes = [LeaseChange(each, verb, by=asked.by) for each in tokens]
    if changes:
        failures = await asked.broker.client.settle_leases(topic, DEFAULT_GROUP, changes)
        failure = next((each for each in failures if isinstance(each, KernelError)), None)
        if failure is not None:
            raise failure


def _row(
    seen: View, attempt: int, ready: int, in_base64: bool, truncate: int | None
) -> dict[str, Any]:
    exchange, key = _names(seen.route + b"\0")
    body = seen.body if truncate is None else seen.body[:truncate]
    payload, encoding = base64.b64encode(body).decode(), "base64"
    if not in_base64:
        try:
            payload, encoding = body.decode(), "string"
        except UnicodeDecodeError:
            pass  # then as base64
    return {
        "payload_bytes": len(seen.body),
        "redelivered": attempt > 1,
        "exchange": exchange,
        "routing_key": key,
        "message_count": ready,
        "properties": _said(seen.properties),
        "payload": payload,
        "payload_encoding": encoding,
    }


def _said(block: bytes) -> dict[str, Any]:
    """The properties of a message as JSON says them."""
    fields = properties.split(block)
    found: dict[str, Any] = {}
    for place, (name, field) in enumerate(zip(properties.NAMES, fields, strict=True)):
        if field is None:
            continue
        if place == properties.HEADERS:
            found[name] = plain_table(properties.headers_of(fields))
        elif place in _OCTETS or place == properties.TIMESTAMP:
            found[name] = int.from_bytes(field, "big")
        else:
            found[name] = field[1:].decode("utf-8", "replace")
    return found
