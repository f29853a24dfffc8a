"""RocketMQ's words in the transcripts: a call of service.proto with the fields of its request.

    topic work normal           what `weir topic create --type` does: a stream of one queue
    topic work fifo attempts_max=2 group=g
                                with a consumer group, and after how many attempts it gives up
    a -> SendMessage topic=work message_id=m1 body=one tag=red
    a <- OK
    a <-   entry: message_id=m1
    a <- MESSAGE_BODY_TOO_LARGE "..."

`name=value` is the field of that name wherever it stands in the request, the one nearest to the top
if there are several; it may be called by its parent too (`message_queue.id=0`). `+` begins the next
message or entry. A resource stands for its name, an enum's value for its number, `10s` for a
duration; a time is so long from now. `user_properties.colour=red` is one entry of a map.

A receive asks for 32 messages, for 10 s, and does not wait, unless it says otherwise.

Answers have a line with the status, then one for each part of a stream, or entry. Times, addresses
and digests are left out. Receipt handles, transactions and recall handles are named R1, T1 and C1,
in the order of their coming, and may be used by these names.

`Telemetry` opens the stream of a client, and sends its settings. Clients are told by their names,
and sign nothing: the adapter asks for no signatures.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, cast

from adapters.listener_figures import ListenerFigures
from adapters.rocketmq.codec import stubs
from adapters.rocketmq.environment import Call, Listener
from adapters.rocketmq.errors import REFUSALS
from adapters.rocketmq.messages.topic_types import declared
from adapters.rocketmq.server import RocketmqAdapter
from adapters.rocketmq.settings import RocketmqSettings
from adapters.rocketmq.topics.routes import place_of
from auth.policies.policy_decisions import PolicyBook
from auth.principal import SignInMode
from kernel.api.client import PutTopic
from kernel.api.model import GroupOptions, HalfOptions, TopicKind, TopicOptions
from tests.adapters.in_process import directory
from tests.adapters.session_script import AdapterScript, quoted, shown
from tests.simulator.world import World
from tests.transcripts import milliseconds, parsed

assert stubs.PACKAGE
service_pb2: Any = sys.modules["rocketmq.grpc_protocol.service_pb2"]

LISTENER = Listener("grpc", place_of("192.0.2.9", 8081), None)
SETTINGS = RocketmqSettings(sign_in=SignInMode.OFF, invisible_ms_min=1_000)
STREAMS = ("ReceiveMessage", "PullMessage")
NAMED = {"receipt_handle": "R", "transaction_id": "T", "recall_handle": "C"}
HIDDEN = {
    "body_digest",
    "body_encoding",
    "born_host",
    "born_timestamp",
    "broker",
    "delivery_timestamp",
    "store_host",
    "store_timestamp",
}
DEFAULTS = {
    "ReceiveMessage": {
        "batch_size": "32",
        "invisible_duration": "10s",
        "long_polling_timeout": "0s",
    },
    "PullMessage": {"batch_size": "32"},
}
"""What is sent if a command names no other."""
WHOLE = {"Resource", "Duration", "Timestamp"}
"""Messages that are one word here."""
HALF = HalfOptions(check_after_ms=5_000, check_interval_ms=5_000, checks_max=2)


class ScriptCall:
    """`environment.Call` of a client; what is written goes to `told`."""

    certified = None
    is_encrypted = False
    peer = ""

    def __init__(self, name: str, told: Callable[[bytes], None]) -> None:
        self.metadata: Iterable[tuple[str, str | bytes]] = (
            ("x-mq-client-id", name or "client"),
            ("x-mq-language", "JAVA"),
        )
        self.caller: Any = None
        self.account: Any = None
        self.bytes_out = 0
        self.inbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._told = told

    def time_remaining(self) -> float | None:
        return None

    async def write(self, message: bytes) -> None:
        self.bytes_out += len(message)
        self._told(message)

    async def read(self) -> bytes | None:
        return await self.inbox.get()


class Script(AdapterScript[RocketmqAdapter]):
    """The commands of one transcript."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.names: dict[str, str] = {}
        """What handles are called."""
        self.lines: list[str] = []
        self.streams: dict[str, ScriptCall] = {}
        """Telemetry, by client."""
        self.tasks: set[asyncio.Task[None]] = set()

    def serving(self) -> RocketmqAdapter:
        world = self.world
        known = directory("allow consume topic:*")
        adapter = RocketmqAdapter(
            world.client,
            world.client.origins,
            known,
            PolicyBook(known),
            [],
            clock=world.clock,
            settings=SETTINGS,
        )
        # Calls come by no socket: they are counted all the same.
        figures = cast("dict[str, ListenerFigures]", adapter._environment.figures_of)
        figures[LISTENER.name] = ListenerFigures("rocketmq", LISTENER.name, world.clock, REFUSALS)
        return adapter

    def heard(self) -> Iterable[str]:
        lines, self.lines = self.lines, []
        return lines

    def disconnected(self) -> None:
        self.streams.clear()
        for task in self.tasks:
            task.cancel()

    async def act(self, words: list[str]) -> None:
        match words:
            case ["topic", name, kind, *options]:
                await self._make_topic(name, kind, parsed(" ".join(options))[1])
            case [client, "drop"]:
                self.streams.pop(client).inbox.put_nowait(None)
            case _:
                await super().act(words)

    async def _make_topic(self, name: str, kind: str, named: dict[str, str]) -> None:
        group, attempts = named.get("group"), named.get("attempts_max")
        options = TopicOptions(kind=TopicKind.STREAM, half=HALF, queues=int(named.get("queues", 1)))
        groups = {}
        if group is not None:
            groups[group] = GroupOptions(
                ordered=kind == "fifo", attempts_max=int(attempts) if attempts else None
            )
        await self.world.client.administer(
            PutTopic("default", name, declared(options, kind), groups)
        )

    # --- Calls ------------------------------------------------------------------------------

    async def send(self, name: str, text: str) -> None:
        adapter = await self.served()
        method, _, fields = text.partition(" ")
        answer = "TelemetryCommand" if method == "Telemetry" else f"{method}Response"

        def told(data: bytes) -> None:
            start = f"{name} <- " if name else "<- "
            message = getattr(service_pb2, answer).FromString(data)
            self.lines += [start + line for line in self._answer(message)]

        if method == "Telemetry":
            data = self._request(service_pb2.TelemetryCommand, fields)
            stream = self.streams.get(name)
            if stream is None:
                stream = self.streams[name] = ScriptCall(name, told)
                self._start(adapter._streams.serve(stream, listener="grpc"))
            stream.inbox.put_nowait(data)
            return
        data = self._request(getattr(service_pb2, f"{method}Request"), fields, DEFAULTS.get(method))
        call = ScriptCall(name, told)
        if method in STREAMS:
            self._start(adapter._service.streaming_calls(LISTENER)[method](data, call))
        else:
            self._start(self._unary(adapter._service.unary_calls(LISTENER)[method], data, call))

    async def _unary(
        self, action: Callable[[bytes, Call], Awaitable[bytes]], data: bytes, call: ScriptCall
    ) -> None:
        await call.write(await action(data, call))

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    # --- Requests ---------------------------------------------------------------------------

    def _request(self, kind: Any, text: str, defaults: Mapping[str, str] | None = None) -> bytes:
        request = kind()
        for entry, part in enumerate(text.split(" + ")):
            for name, value in {**(defaults or {}), **parsed(part)[1]}.items():
                self._put(request, name, value, entry)
        data: bytes = request.SerializeToString()
        return data

    def _put(self, request: Any, name: str, value: str, entry: int) -> None:
        outer, _, key = name.rpartition(".")
        path = _path(request.DESCRIPTOR, outer or name)
        if outer and path[-1].message_type is not None and not _is_map(path[-1]):
            path = [*path, path[-1].message_type.fields_by_name[key]]
        at = request
        for field in path[:-1]:
            at = getattr(at, field.name)
            if field.is_repeated:
                while len(at) <= entry:
                    at.add()
                at = at[entry]
        field = path[-1]
        if _is_map(field):
            getattr(at, field.name)[key] = value
        elif field.message_type is not None:
            found = getattr(at, field.name)
            for each in value.split(",") if field.is_repeated else [value]:
                self._put_whole(found.add() if field.is_repeated else found, each)
        elif field.is_repeated:
            getattr(at, field.name).extend(value.split(","))
        else:
            setattr(at, field.name, self._plain(field, value))

    def _put_whole(self, target: Any, value: str) -> None:
        match target.DESCRIPTOR.name:
            case "Resource":
                target.name = value
            case "Duration":
                target.FromMilliseconds(milliseconds(value))
            case "Timestamp":
                target.FromMilliseconds(self.world.clock.wall_ms() + milliseconds(value))
            case other:
                raise ValueError(f"a {other} is no single word")

    def _plain(self, field: Any, value: str) -> object:
        if field.enum_type is not None:
            return field.enum_type.values_by_name[value].number
        if field.type == field.TYPE_BYTES:
            return value.encode()
        if field.type == field.TYPE_STRING:
            handles = {called: handle for handle, called in self.names.items()}
            if field.name in NAMED and value not in handles:
                # No handle that we were given: it keeps its own text in the answer.
                self.names[value] = value
            return handles.get(value, value)
        return int(value)

    # --- Answers ----------------------------------------------------------------------------

    def _answer(self, answer: Any) -> Iterable[str]:
        plain: dict[str, str] = {}
        rows: list[str] = []
        status = ""
        for field, value in answer.ListFields():
            if field.name == "status":
                status = _status(value)
            elif field.is_repeated and field.message_type is not None:
                name = field.name.removesuffix("s").replace("entrie", "entry")
                rows += [f"  {name}: {shown(**self._fields(each))}" for each in value]
            elif field.message_type is not None and field.message_type.name not in WHOLE:
                text = shown(**self._fields(value))
                rows.append(f"  {field.name}: {text}")
            else:
                plain.update(self._field(field, value))
        first = " ".join(part for part in (status, shown(**plain)) if part)
        if first:
            yield first
        yield from rows

    def _fields(self, message: Any) -> dict[str, str]:
        found: dict[str, str] = {}
        for field, value in message.ListFields():
            found |= self._field(field, value)
        return found

    def _field(self, field: Any, value: Any) -> dict[str, str]:
        """A field as `name=value`; those of a message in it stand beside each other."""
        if field.name in HIDDEN or value == "":
            return {}
        if _is_map(field):
            return {f"{field.name}.{key}": value[key] for key in sorted(value)}
        if field.name == "status":
            return {} if value.code == 20_000 else {"status": _status(value)}
        if field.is_repeated:
            each = [self._word(field, one) for one in value]
            return {field.name: ",".join(each)}
        if field.message_type is not None and field.message_type.name not in WHOLE:
            return self._fields(value)
        return {field.name: self._word(field, value)}

    def _word(self, field: Any, value: Any) -> str:
        kind = field.message_type.name if field.message_type is not None else ""
        if kind == "Resource":
            return str(value.name)
        if kind == "Duration":
            return f"{value.ToMilliseconds()}ms"
        if kind:
            return "{" + shown(**self._fields(value)).replace(" ", ",") + "}"
        if field.enum_type is not None:
            return str(field.enum_type.values_by_number[value].name)
        if field.type == field.TYPE_BYTES:
            return quoted(value)
        text = str(int(value) if isinstance(value, bool) else value)
        if field.name in NAMED:
            letter = NAMED[field.name]
            count = sum(called[0] == letter for called in self.names.values())
            return self.names.setdefault(text, f"{letter}{count + 1}")
        return f'"{text}"' if " " in text else text


def _status(status: Any) -> str:
    code = status.DESCRIPTOR.fields_by_name["code"].enum_type.values_by_number[status.code].name
    return str(code) if code == "OK" else f'{code} "{status.message}"'


def _is_map(field: Any) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def _path(descriptor: Any, name: str) -> list[Any]:
    """The fields that lead to the nearest one of a name."""
    level: list[tuple[list[Any], Any]] = [([], descriptor)]
    while level:
        for path, each in level:
            if name in each.fields_by_name:
                return [*path, each.fields_by_name[name]]
        level = [
            ([*path, field], field.message_type)
            for path, each in level
            for field in each.fields
            if field.message_type is not None
            and field.message_type.name not in WHOLE
            and not _is_map(field)
        ]
    raise ValueError(f"{descriptor.name} has no field {name}")
