"""Producers of transactional messages are asked what became of them: who, and over which stream.

A stream may be asked about a topic from the settings that name it, or its first transactional
message, until it ends.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from adapters.tree_rights import allowed, into_topic

from ..codec import answer_encoding as wire
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
    from ..codec.answer_encoding import Name
    from ..topics.ready_topics import Topic


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
