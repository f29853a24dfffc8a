"""A real RocketMQ adapter over a real store in a temporary directory, and raw calls of it.

The adapter runs on an event loop in a thread of its own. `Wire` calls it with the generated
messages and nothing else, so that a test says exactly what a client sends and sees what it gets;
the real client runs in a process of its own (`test_real_client`), because it writes log files into
the home directory and keeps threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import grpc

from adapters.rocketmq.codec import stubs
from adapters.rocketmq.messages.topic_types import declared
from adapters.rocketmq.server import GrpcListener, RocketmqAdapter
from adapters.rocketmq.services.messaging_service import SERVICE
from adapters.rocketmq.settings import RocketmqSettings
from auth.policies.policy_decisions import PolicyBook
from kernel.api.client import Client, PutTopic
from kernel.api.model import GroupOptions, TopicInfo, TopicKind, TopicOptions, TopicStatistics
from kernel.in_process.opening import LocalStore
from kernel.store.drivers.disk import DirectoryDisk, DiskFile
from tests.adapters.in_process import (
    KEY_ID,
    SECRET,
    MovableClock,
    directory,
    in_thread,
    running_store,
)
from tests.adapters.kernels import kernel_of
from tests.simulator.world import figures_of

assert stubs.PACKAGE
service_pb2: Any = sys.modules["rocketmq.grpc_protocol.service_pb2"]
definition_pb2: Any = sys.modules["rocketmq.grpc_protocol.definition_pb2"]

MESSAGE_ID = "01" + "AB" * 16

ResultT = TypeVar("ResultT")
Headers = Mapping[str, str | None]


class Meter:
    """`adapters.base.TrafficMeter` that keeps the calls it is told of, and the connections."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str, str, int, int]] = []
        """(tenant, action, name, outcome, octets in, octets out)"""
        self.connections: Counter[str] = Counter()
        self.handed: list[tuple[str, str, str, int, int, int]] = []
        """(tenant, topic, group, messages, bytes, units) without a lease."""

    def calls(self, actions: Mapping[str, str]):
        told = self.told

        class Calls:
            def counter(self, tenant: str, name: str, /):
                return SimpleNamespace(call=partial(self.ended, tenant, name, "ok"))

            def ended(self, tenant: str, name: str, outcome: str, *octets: int) -> None:
                told.append((tenant, actions.get(name, "admin"), name, outcome, *octets))

        return Calls()

    def unleased_counter(self, tenant: str, topic: str, group: str):
        def count(messages: int, size_bytes: int, units: int) -> None:
            self.handed.append((tenant, topic, group, messages, size_bytes, units))

        return SimpleNamespace(count=count)

    def connection_opened(self, tenant: str) -> None:
        self.connections[tenant] += 1

    def connection_closed(self, tenant: str) -> None:
        self.connections[tenant] -= 1


@dataclass
class Broker:
    """A running adapter."""

    adapter: RocketmqAdapter
    store: LocalStore
    clock: MovableClock
    meter: Meter
    loop: asyncio.AbstractEventLoop
    kernel: Client
    """What the adapter talks to: the store's own client, or a hostile one before it."""

    @property
    def port(self) -> int:
        return self.adapter.addresses()["grpc"][1]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def run(self, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Await something in the loop of the broker, from another thread."""

        async def call() -> ResultT:
            return await work()

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(20)

    def do(self, work: Callable[[], ResultT]) -> ResultT:
        """Call something in the loop of the broker, from another thread."""

        async def call() -> ResultT:
            return work()

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(20)

    def topic(
        self,
        name: str,
        word: str | None = "normal",
        *,
        queues: int = 1,
        groups: Mapping[str, GroupOptions] | None = None,
        **options: Any,
    ) -> TopicInfo:
        """Make a topic; a stream unless the options say otherwise."""
        chosen = TopicOptions(**{"kind": TopicKind.STREAM, "queues": queues, **options})
        if word is not None:
            chosen = declared(chosen, word)
        change = PutTopic("default", name, chosen, groups or {})
        made = self.run(lambda: self.kernel.administer(change))
        assert isinstance(made, TopicInfo)
        return made

    def info(self, name: str) -> TopicInfo | None:
        return self.do(lambda: self.store.client.topic("default", name))

    def statistics(self, name: str, group: str) -> TopicStatistics:
        def look() -> TopicStatistics:
            topic = self.store.client.topic("default", name)
            assert topic is not None
            return figures_of(self.store.client, topic, group)

        return self.do(look)


class HeldFile(DiskFile):
    """A file whose syncs wait while the test says so."""

    __slots__ = ("_may_sync",)

    def __init__(self, descriptor: int, may_sync: threading.Event) -> None:
        super().__init__(descriptor)
        self._may_sync = may_sync

    def fdatasync(self) -> None:
        assert self._may_sync.wait(30), "held for ever"
        super().fdatasync()


class HeldDisk(DirectoryDisk):
    """A directory in which nothing is synced while `may_sync` is clear."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.may_sync = threading.Event()
        self.may_sync.set()

    def open(self, name: str, *, create: bool = False) -> HeldFile:
        found = super().open(name, create=create)
        held = HeldFile(found.descriptor, self.may_sync)
        found.descriptor = -1
        return held


@contextlib.asynccontextmanager
async def running_broker(
    path: Path,
    settings: RocketmqSettings | None = None,
    listeners: Iterable[GrpcListener] = (GrpcListener("grpc", "127.0.0.1", 0),),
    disk: DirectoryDisk | None = None,
    hostile: int | None = None,
) -> AsyncIterator[Broker]:
    """A broker on a free loopback port, over the data in `path`. `hostile`: seed of a network
    between it and its store (default: none, or WEIR_HOSTILE of the environment).
    """
    clock, meter = MovableClock(), Meter()
    async with (
        running_store(disk or path, clock) as store,
        kernel_of(store, clock, hostile) as kernel,
    ):
        known = directory("allow consume topic:open* group:readers")
        adapter = RocketmqAdapter(
            kernel,
            store.client.origins,
            known,
            PolicyBook(known),
            listeners,
            clock=clock,
            settings=settings or RocketmqSettings(invisible_ms_min=1_000),
            meter=meter,
        )
        await adapter.start()
        try:
            yield Broker(adapter, store, clock, meter, asyncio.get_running_loop(), kernel)
        finally:
            await adapter.stop()


def broker_in_thread(
    path: Path,
    settings: RocketmqSettings | None = None,
    listeners: Iterable[GrpcListener] = (GrpcListener("grpc", "127.0.0.1", 0),),
    disk: DirectoryDisk | None = None,
    hostile: int | None = None,
) -> AbstractContextManager[Broker]:
    """The same on an event loop of its own, for clients that block."""
    return in_thread(partial(running_broker, path, settings, listeners, disk, hostile))


# --- Raw calls ----------------------------------------------------------------------------------


SIGNED_AT = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")


def signed(
    key_id: str = KEY_ID, secret: str = SECRET, date_time: str = SIGNED_AT, **changed: str | None
) -> dict[str, str]:
    """The headers of a call as the Python client sends them. None leaves a header out."""
    signature = hmac.new(secret.encode(), date_time.encode(), "sha1").hexdigest()
    headers: dict[str, str | None] = {
        "x-mq-language": "PYTHON",
        "x-mq-protocol": "GRPC_V2",
        "x-mq-client-version": "5.1.2",
        "x-mq-date-time": date_time,
        "x-mq-client-id": "host@1@0@abc",
        "authorization": f"MQv2-HMAC-SHA1 Credential={key_id}, SignedHeaders=x-mq-date-time, "
        f"Signature={signature}",
    }
    headers |= {name.replace("_", "-"): value for name, value in changed.items()}
    return {name: value for name, value in headers.items() if value is not None}


class Wire:
    """Calls over one connection. Answers are the generated messages."""

    def __init__(self, address: str, headers: Mapping[str, str] | None = None) -> None:
        self.channel = grpc.insecure_channel(
            address, options=[("grpc.max_receive_message_length", -1)]
        )
        self.headers = signed() if headers is None else headers

    def close(self) -> None:
        self.channel.close()

    def _metadata(self, headers: Mapping[str, str] | None):
        return tuple((self.headers if headers is None else headers).items())

    def raw(self, name: str, data: bytes, headers: Mapping[str, str] | None = None) -> bytes:
        """One call with one answer, in bytes."""
        call = self.channel.unary_unary(f"/{SERVICE}/{name}")
        answer: bytes = call(data, metadata=self._metadata(headers), timeout=20)
        return answer

    def pull(self, topic: str, queue: int, offset: int, group: str = "g", **fields: Any) -> Pulled:
        request = service_pb2.PullMessageRequest(
            group=resource(group), offset=offset, batch_size=fields.pop("batch", 32)
        )
        request.message_queue.topic.name, request.message_queue.id = topic, queue
        request.long_polling_timeout.FromMilliseconds(int(1000 * fields.pop("wait_s", 0)))
        if "expression" in fields:
            request.filter_expression.type = 1
            request.filter_expression.expression = fields["expression"]
        headers = fields.get("headers")
        return Pulled(list(self.stream("PullMessage", request.SerializeToString(), headers)))

    def call(self, name: str, request: Any, headers: Mapping[str, str] | None = None) -> Any:
        """One call with one answer."""
        answer = getattr(service_pb2, f"{name}Response")
        return answer.FromString(self.raw(name, request.SerializeToString(), headers))

    def stream(
        self,
        name: str,
        data: bytes,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = 20,
    ) -> Any:
        """A call whose answer is a stream: gRPC's call object."""
        call = self.channel.unary_stream(
            f"/{SERVICE}/{name}",
            response_deserializer=getattr(service_pb2, f"{name}Response").FromString,
        )
        return call(data, metadata=self._metadata(headers), timeout=timeout)

    # --- What tests ask for often -----------------------------------------------------------

    def send(self, *messages: Any, headers: Mapping[str, str] | None = None) -> Any:
        return self.call("SendMessage", service_pb2.SendMessageRequest(messages=messages), headers)

    def receive(
        self, topic: str, group: str, *, timeout: float | None = 20, **fields: Any
    ) -> Received:
        call = self.stream(
            "ReceiveMessage",
            receive_request(topic, group, **fields).SerializeToString(),
            timeout=timeout,
        )
        return Received(list(call))

    def ack(self, topic: str, group: str, *handles: str) -> Any:
        entries = [
            service_pb2.AckMessageEntry(message_id=MESSAGE_ID, receipt_handle=handle)
            for handle in handles
        ]
        request = service_pb2.AckMessageRequest(
            topic=resource(topic), group=resource(group), entries=entries
        )
        return self.call("AckMessage", request)

    def change(self, topic: str, group: str, handle: str, seconds: float, **fields: Any) -> Any:
        request = service_pb2.ChangeInvisibleDurationRequest(
            topic=resource(topic), group=resource(group), receipt_handle=handle, **fields
        )
        request.invisible_duration.FromMilliseconds(int(seconds * 1000))
        return self.call("ChangeInvisibleDuration", request)


class Pulled:
    """The parts of an answer to PullMessage."""

    def __init__(self, parts: list[Any]) -> None:
        self.kinds = [part.WhichOneof("content") for part in parts]
        self.code = parts[0].status.code
        self.messages = [part.message for part in parts if part.HasField("message")]
        self.bodies = [message.body for message in self.messages]
        self.next_offset = parts[-1].next_offset if self.kinds[-1] == "next_offset" else None


class Received:
    """The parts of an answer to ReceiveMessage."""

    def __init__(self, parts: list[Any]) -> None:
        self.kinds = [part.WhichOneof("content") for part in parts]
        self.code = parts[0].status.code
        self.text = parts[0].status.message
        self.messages = [part.message for part in parts if part.HasField("message")]

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    @property
    def handles(self) -> list[str]:
        return [message.system_properties.receipt_handle for message in self.messages]

    @property
    def attempts(self) -> list[int]:
        return [message.system_properties.delivery_attempt for message in self.messages]


def resource(name: str, namespace: str = "") -> Any:
    return definition_pb2.Resource(name=name, resource_namespace=namespace)


def message(
    topic: str,
    body: bytes = b"hello",
    *,
    namespace: str = "",
    properties: Mapping[str, str] | None = None,
    delivery_ms: int | None = None,
    **system: Any,
) -> Any:
    """A message as the Python client builds it."""
    made = definition_pb2.Message(
        topic=resource(topic, namespace), body=body, user_properties=properties or {}
    )
    fields = {"message_id": MESSAGE_ID, "body_encoding": 1, "born_host": "10.0.0.7", **system}
    for name, value in fields.items():
        if name == "keys":
            made.system_properties.keys.extend(value)
        else:
            setattr(made.system_properties, name, value)
    made.system_properties.born_timestamp.seconds = 1_700_000_000
    if delivery_ms is not None:
        made.system_properties.delivery_timestamp.FromMilliseconds(delivery_ms)
    return made


def receive_request(
    topic: str,
    group: str,
    *,
    batch: int = 32,
    wait_s: float | None = 0,
    invisible_s: float | None = 10,
    expression: str | None = None,
    expression_type: int = 1,
    **fields: Any,
) -> Any:
    """A request of a SimpleConsumer."""
    request = service_pb2.ReceiveMessageRequest(group=resource(group), batch_size=batch, **fields)
    request.message_queue.topic.name = topic
    if wait_s is not None:
        request.long_polling_timeout.FromMilliseconds(int(wait_s * 1000))
    if invisible_s is not None:
        request.invisible_duration.FromMilliseconds(int(invisible_s * 1000))
    if expression is not None:
        request.filter_expression.type = expression_type
        request.filter_expression.expression = expression
    return request


def endpoints(scheme: int, *addresses: tuple[str, int]) -> Any:
    return definition_pb2.Endpoints(
        scheme=scheme,
        addresses=[definition_pb2.Address(host=host, port=port) for host, port in addresses],
    )
