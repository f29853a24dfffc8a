"""Which topics the clients of this gateway produce to and consume from: counted where it passes by,
told to the leader of group 0 (`cluster.gateways`) about once a second.

Produced messages are counted by queue as batches leave for a leader; consumers are the push streams
that are there, and whoever has pulled lately. Each is known by its consumer key, the connection
that it came by, so that clients can be chosen by what they consume: the session, or for pulls
without one `ReceiveSpec.consumer_key`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from heapq import nlargest
from typing import NamedTuple

from ..api.client import ReceiveSpec
from ..api.model import TopicInfo
from ..common.ids import MEMORY_FIRST, QueueId, TopicId, topic_of
from .definitions.mirror import Hears
from .streams.parts import CreditPool, StreamPart

COUNTED_MAX = 65_536
"""Consumer keys that pull, each counted for every group it pulls from; what comes beyond is not
told."""

KEPT_REPORTS = 40
"""Who has not pulled between so many reports is gone: the longest poll waits 30 s."""

PARTS_MAX = 20_000
"""With more push streams these are not told: looking at each takes 10 ms."""


class Produced(NamedTuple):
    """Messages for one topic since the last report."""

    tenant: str
    topic: str
    messages: int


class Consumers(NamedTuple):
    """Those of one group that came from one origin."""

    tenant: str
    topic: str
    group: str
    origin: int


_Key = tuple[str, str, str, int]
"""The same; a plain tuple is made in a quarter of the time."""


class Consumed(NamedTuple):
    """How many of them there are."""

    of: Consumers
    consumers: int


class Tasks(Hears):
    """Counts what the clients of this gateway produce to and consume from."""

    def __init__(self, parts: Callable[[], Iterable[StreamPart]], count: dict[int, int]) -> None:
        """`parts()`: the push streams that are there now; `count`: messages by queue, which whoever
        sends them adds to.
        """
        self._parts = parts
        self._sent = count
        self._names: dict[TopicId, tuple[str, str]] = {}
        self._pulled: dict[_Key, dict[Hashable, int]] = {}
        """By consumer key, after how many reports it has pulled last."""
        self._reports = 0
        self._counted = 0

    def topic_changed(self, topic: TopicInfo, *, removed: bool) -> None:
        """See `Hears`."""
        if removed:
            self._names.pop(topic.id, None)
        elif not topic.options.hidden:
            self._names[topic.id] = (topic.tenant, topic.name)

    def pulled(self, spec: ReceiveSpec) -> None:
        """Somebody pulls (hot)."""
        session, topic = spec.session, spec.topic
        consumer_key, origin = spec.consumer_key, spec.origin
        if session is not None:
            consumer_key, origin = session.id, session.origin
        of = (topic.tenant, topic.name, spec.group, origin)
        consumers_by_key = self._pulled.get(of)
        if consumers_by_key is None or consumer_key not in consumers_by_key:
            if self._counted >= COUNTED_MAX:
                return
            self._counted += 1
            consumers_by_key = self._pulled.setdefault(of, {})
        consumers_by_key[consumer_key] = self._reports

    def produced(self, most: int) -> list[Produced]:
        """The topics with the most messages since the last time."""
        by_topic: dict[tuple[str, str], int] = {}
        for queue, messages in self._sent.items():
            name = self._names.get(topic_of(QueueId(queue)))
            if name is not None:
                by_topic[name] = by_topic.get(name, 0) + messages
        self._sent.clear()
        best = nlargest(most, by_topic.items(), key=lambda each: (each[1], each[0]))
        return [Produced(*name, messages) for name, messages in best]

    def consumed(self, most: int) -> list[Consumed]:
        """The groups with the most consumers."""
        self._reports += 1
        self._forget_silent()
        found = {
            Consumers(*key): len(consumers_by_key) for key, consumers_by_key in self._pulled.items()
        }
        pushed: dict[_Key, set[CreditPool]] = {}
        for number, part in enumerate(self._parts()):
            if number == PARTS_MAX:
                pushed.clear()
                break
            key = _key_of(part)
            if key is not None:
                # A consumer of a topic with several queues has a stream for each.
                pushed.setdefault(key, set()).add(part.pool)
        for key, pools in pushed.items():
            of = Consumers(*key)
            found[of] = found.get(of, 0) + len(pools)
        best = nlargest(most, found.items(), key=lambda each: (each[1], each[0]))
        return [Consumed(*each) for each in best]

    def consumers_by_key(self, of: Consumers) -> Mapping[Hashable, int]:
        """How many of these consumers each key has."""
        found: dict[Hashable, int] = dict.fromkeys(self._pulled.get(of, ()), 1)
        pools: set[CreditPool] = set()
        for part in self._parts():
            if part.pool not in pools and _key_of(part) == of:
                pools.add(part.pool)
                found[part.session] = found.get(part.session, 0) + 1
        return found

    def _forget_silent(self) -> None:
        since = self._reports - KEPT_REPORTS
        for of, consumers_by_key in list(self._pulled.items()):
            for consumer_key in [
                consumer_key for consumer_key, report in consumers_by_key.items() if report < since
            ]:
                del consumers_by_key[consumer_key]
                self._counted -= 1
            if not consumers_by_key:
                del self._pulled[of]


def _key_of(part: StreamPart) -> _Key | None:
    """Whose consumer a stream is a part of; None: of nobody's, any more or at all, or of a topic
    in the memory of a gateway: clients are not moved after that.
    """
    spec = part.spec
    if spec.pull or part.ended or part.ref.group >= MEMORY_FIRST:
        return None
    return spec.topic.tenant, spec.topic.name, spec.group, part.origin
