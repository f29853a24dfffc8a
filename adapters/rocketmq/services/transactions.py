"""Transactional messages: sent now, delivered if and when their producer says so.

    SendMessage       the message is prepared: stored, but in no queue. Its transaction id is told
    EndTransaction    commit (it is delivered like any other) or rollback (it is gone)
    Telemetry         while nobody has said, any producer of the topic is asked, again and again
                      (RecoverOrphanedTransactionCommand): the one that sent it may be dead

When and how often is asked, and how many may wait, are options of the topic (`HalfOptions`). As in
the reference, the topic's name is that of the producer group. A client is a producer of a topic
from the settings that name it, or its first transactional message, until its stream ends.

Durability: OK to a send means that the message, and to an EndTransaction that the decision, is in
the log, on the disks of a majority of the voters (one node: on this node's). A transaction id is
the kernel's token in hexadecimal.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from adapters.tree_rights import allowed, into_topic
from kernel.common.errors import Code as KernelCode
from kernel.common.errors import KernelError

from ..codec import wire
from ..codec.stubs import parse_end_transaction
from ..errors import Code, RocketmqError
from ..messages.delivered import Writer
from ..settings import STREAM_TOPICS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel.api.client import Client
    from kernel.api.model import TopicInfo
    from kernel.api.origins import Origins
    from kernel.api.transactions import HalfCheck, HalfWatch

    from ..clients.callers import Caller
    from ..clients.registry import ClientKey
    from ..codec.wire import Name
    from ..environment import Call, Environment
    from ..messages.stored import Draft
    from ..topics.ready_topics import Topic

UNDECIDED: Final = 0
COMMIT: Final = 1
ROLLBACK: Final = 2
"""`enum TransactionResolution`."""


async def prepare(
    environment: Environment, caller: Caller, topic: Topic, name: Name, draft: Draft
) -> bytes:
    """SendMessage of a transactional message. Raises KernelError."""
    parts, _, ident, _, _ = draft
    info = topic.info
    token = await environment.client.halves.prepare(info, info.name, parts)
    environment.producers.publishes((caller.tenant, caller.client_id), topic, name)
    environment.counters.sent += 1
    return wire.OK + wire.prepared(ident, token.hex())


async def end_transaction(environment: Environment, data: bytes, call: Call) -> bytes:
    """EndTransaction. Raises RocketmqError, KernelError."""
    caller = environment.admit(call)
    request = parse_end_transaction(data)
    tenant, shown = caller.tenant_of(request.topic)
    kernel_name = caller.topic_to_publish(shown.name, environment.settings)
    topic = await environment.topics.find(tenant, kernel_name)
    caller.check_into(topic.info)
    try:
        token = bytes.fromhex(request.transaction_id)
    except ValueError:
        raise _not_a_transaction("this is not a transaction id") from None
    if request.resolution == UNDECIDED:
        # A producer that does not know yet: it is asked again.
        return wire.OK
    if request.resolution not in {COMMIT, ROLLBACK}:
        text = f"there is no transaction resolution {request.resolution}"
        raise RocketmqError(Code.BAD_REQUEST, text)
    is_commit = request.resolution == COMMIT
    try:
        await environment.client.halves.end(topic.info, token, commit=is_commit)
    except KernelError as error:
        if error.code is KernelCode.LEASE_LOST:
            raise _not_a_transaction(error.message) from None
        raise
    return wire.OK


def _not_a_transaction(text: str) -> RocketmqError:
    return RocketmqError(Code.INVALID_TRANSACTION_ID, text)


# --- Questions ----------------------------------------------------------------------------------


class Questions:
    """What is asked over one telemetry stream."""

    __slots__ = ("_ask", "_caller", "_client", "_watches")

    def __init__(self, client: Client, caller: Caller, ask: Callable[[bytes], None]) -> None:
        self._client = client
        self._caller = caller
        self._ask = ask
        self._watches: dict[int, HalfWatch] = {}
        """By topic id."""

    def about(self, topic: Topic, name: Name) -> None:
        """Ask about messages of a topic; `name`: as the client spells it."""
        info = topic.info
        if not topic.has_transactions or info.id in self._watches:
            return
        if len(self._watches) < STREAM_TOPICS_MAX:
            sink = _Sink(name, self._client.origins, partial(self._put, info))
            self._watches[info.id] = self._client.halves.watch(info.tenant, info.name, sink)

    def _put(self, topic: TopicInfo, question: bytes) -> None:
        """Ask, if the client still may publish to the topic: a question holds its message."""
        caller = self._caller
        if caller.is_admitted() and allowed(caller.rights, into_topic(topic.name, topic)):
            self._ask(question)

    def close(self) -> None:
        """Ask nothing more."""
        for watch in self._watches.values():
            watch.close()
        self._watches.clear()


class _Sink:
    """`kernel.api.transactions.HalfSink` of one topic and stream."""

    __slots__ = ("_ask", "_writer")

    def __init__(self, name: Name, origins: Origins, ask: Callable[[bytes], None]) -> None:
        self._writer = Writer(name, 0, 0, "", origins)
        self._ask = ask

    def check(self, check: HalfCheck) -> None:
        """Ask the producer."""
        self._ask(wire.transaction_check(self._writer.half(check.slot), check.token.hex()))


class Producers:
    """The streams of all clients, as far as they may be asked. Belongs to the event loop."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._open: dict[ClientKey, list[Questions]] = {}
        self.not_asked = 0
        """Questions that were not put, because the client does not read or has just gone."""

    def joined(self, caller: Caller, ask: Callable[[bytes], bool]) -> Questions:
        """A caller has a stream, over which `ask` puts a question, if it can. To be ended by
        `left`.
        """

        def put(question: bytes) -> None:
            self.not_asked += not ask(question)

        questions = Questions(self._client, caller, put)
        self._open.setdefault((caller.tenant, caller.client_id), []).append(questions)
        return questions

    def left(self, key: ClientKey, questions: Questions) -> None:
        """The stream is over."""
        questions.close()
        streams = self._open[key]
        streams.remove(questions)
        if not streams:
            del self._open[key]

    def publishes(self, key: ClientKey, topic: Topic, name: Name) -> None:
        """A client sends to a topic of transactions: some clients say so in no other way."""
        for questions in self._open.get(key, ()):
            questions.about(topic, name)
