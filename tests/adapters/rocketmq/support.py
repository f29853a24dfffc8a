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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import grpc

from adapters.rocketmq import stubs
from adapters.rocketmq.server import GrpcListener, RocketmqAdapter
from adapters.rocketmq.service import SERVICE
from adapters.rocketmq.settings import RocketmqSettings
from adapters.rocketmq.topic_types import declared
from auth.development import Listener, development_principals
from auth.directory import Directory
from auth.policy import PolicyBook
from auth.records import AccessKey, Create, Policy, User
from auth.rules import parse_rule
from auth.store import AuthStore
from kernel.client import PutTopic
from kernel.model import GroupOptions, TopicInfo, TopicKind, TopicOptions, TopicStatistics
from kernel.store.disk import DirectoryDisk, DiskFile
from kernel.store.opening import LocalStore, open_store
from kernel.store.system import SystemClock, SystemRandom
from kernel.store.worker import Worker
from tests.simulator.world import figures_of

assert stubs.PACKAGE
service_pb2: Any = sys.modules["rocketmq.grpc_protocol.service_pb2"]
definition_pb2: Any = sys.modules["rocketmq.grpc_protocol.definition_pb2"]

KEY_ID, SECRET = "weir", "weir-secret"
READER_KEY_ID, READER_SECRET = "reader", "reader-secret"
"""Of a user who may consume topics `open*` in group `readers`, and nothing else."""

MESSAGE_ID = "01" + "AB" * 16

ResultT = TypeVar("ResultT")
Headers = Mapping[str, str | None]


class Clock(SystemClock):
    """The system's clocks, which a test may put forward."""

    ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.ahead_ms


def directory() -> Directory:
    """The development key, and a user `reader` with fewer rights."""
    store = AuthStore()
    rules = (parse_rule("allow consume topic:open* group:readers"),)
    store.apply(Create(Policy(tenant="default", name="readers", rules=rules)))
    store.apply(Create(User(tenant="default", name="reader", policies=("readers",))))
    store.apply(
        Create(
            AccessKey(
                key_id=READER_KEY_ID,
                tenant="default",
                user="reader",
                sealed_secret=READER_SECRET.encode(),
            )
        )
    )
    development = development_principals([Listener("grpc", "127.0.0.1", 0)])
    return Directory(store, lambda envelope, context: envelope, development)


class Meter:
    """`adapters.base.DeliveryMeter` that keeps what it is told."""

    def __init__(self) -> None:
        self.counted: dict[tuple[str, str, str], list[tuple[int, int, int]]] = {}

    def delivery_counter(self, tenant: str, topic: str, group: str):
        counts = self.counted.setdefault((tenant, topic, group), [])

        class Counter:
            def count(self, messages: int, size_bytes: int, units_4k: int, /) -> None:
                counts.append((messages, size_bytes, units_4k))

        return Counter()


@dataclass
class Broker:
    """A running adapter."""

    adapter: RocketmqAdapter
    store: LocalStore
    clock: Clock
    meter: Meter
    loop: asyncio.AbstractEventLoop

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
        made = self.run(lambda: self.store.client.administer(change))
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
        held = HeldFile(found._descriptor, self.may_sync)
        found._descriptor = -1
        return held


def _fatal(sentence: str, error: BaseException) -> None:
    raise AssertionError(sentence) from error


@contextlib.asynccontextmanager
async def running_broker(
    path: Path,
    settings: RocketmqSettings | None = None,
    listeners: Iterable[GrpcListener] = (GrpcListener("grpc", "127.0.0.1", 0),),
    disk: DirectoryDisk | None = None,
) -> AsyncIterator[Broker]:
    """A broker on a free loopback port, over the data in `path`."""
    loop = asyncio.get_running_loop()
    clock, meter = Clock(), Meter()
    store = open_store(
        disk or DirectoryDisk(path),
        clock,
        SystemRandom(),
        partial(Worker, loop),
        _fatal,
        reserve_bytes=0,
    )
    await store.start()
    known = directory()
    adapter = RocketmqAdapter(
        store.client,
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
        yield Broker(adapter, store, clock, meter, loop)
    finally:
        await adapter.stop()
        await store.stop()


@contextlib.contextmanager
def broker_in_thread(
    path: Path,
    settings: RocketmqSettings | None = None,
    listeners: Iterable[GrpcListener] = (GrpcListener("grpc", "127.0.0.1", 0),),
    disk: DirectoryDisk | None = None,
) -> Iterator[Broker]:
    """The same on an event loop of its own, for clients that block."""
    started: list[Broker] = []
    failed: list[BaseException] = []
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    stopping = asyncio.Event()

    async def main() -> None:
        async with running_broker(path, settings, listeners, disk) as broker:
            started.append(broker)
            ready.set()
            await stopping.wait()

    def run() -> None:
        try:
            loop.run_until_complete(main())
        except BaseException as error:  # noqa: BLE001 - handed to the test
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="broker")
    thread.start()
    ready.wait(20)
    try:
        if failed:
            raise failed[0]
        yield started[0]
    finally:
        if not failed:
            loop.call_soon_threadsafe(stopping.set)
        thread.join(20)
        loop.close()
    if failed:
        raise failed[0]


# --- Raw calls ----------------------------------------------------------------------------------


def signed(key_id: str = KEY_ID, secret: str = SECRET, **changed: str | None) -> dict[str, str]:
    """The headers of a call as the Python client sends them. None leaves a header out."""
    date_time = "20261121T103000Z"
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
