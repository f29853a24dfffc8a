"""Gateways of a run: they publish as every process does, through the product's own `Publisher`, to
topics whose queues change (ADR 31). What they know of a definition is old, and never gets older.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

from kernel.api.client import PublishBatch
from kernel.api.model import TopicInfo
from kernel.broker.tracing import TraceBuffer
from kernel.common.errors import KernelError
from kernel.common.ids import RaftGroup, TopicId, home_of
from kernel.requests.client_trace import ClientTrace
from kernel.requests.leader import Done, Identity, Leader
from kernel.requests.publish import ProducerBatch
from kernel.requests.publisher import Publisher
from kernel.requests.request_pipeline import Attempt, RequestPipeline
from kernel.routing.destinations import Found
from kernel.routing.topology import Topology
from tests.simulator.peer import ORIGIN, Draft

from .link import SimulatedLink
from .queue_rules import FAILED, REFUSED, UNKNOWN, Sent

if TYPE_CHECKING:
    from .run import Run

LEARNS = 0.3
"""Share of publishes before which a gateway looks at what the definition is, at anybody."""

LATE_S_MAX = 0.5
"""A definition is known so long after that."""

PENDING_MAX = 30


class Gateway:
    """`kernel.requests.publisher.PublishHost`, and `PublishSink` of all that it publishes."""

    accepting = True

    def __init__(self, run: Run, number: int) -> None:
        self._run = run
        self._chance = random.Random(run.seed * 100 + 30 + number)
        self.link = SimulatedLink(run, run.seed * 100 + 30 + number)
        self._request_pipeline = RequestPipeline(self.link, run.clock, run.loop)
        self.uid_high, self.next_uid = number, 1
        self._client, self._sequence = 500 + number, 0
        self.publisher = Publisher(self, None, run.clock, run.loop, ClientTrace(TraceBuffer(), int))  # type: ignore[arg-type]
        self.topology = Topology(run.founding()[1:])
        self.topology.resized = self._resized
        self._sent: dict[PublishBatch, list[Sent]] = {}
        self._looked_s = 0.0

    @property
    def pending(self) -> int:
        """Batches that have no whole answer."""
        return len(self.publisher._pending)

    # --- What the publisher asks ------------------------------------------------------------

    def next_identity(self) -> Identity:
        self._sequence += 1
        return self._client, 1, self._sequence

    def leader_here(self, group: RaftGroup) -> Leader | None:
        return None

    def send_to(self, group: RaftGroup, attempt: Attempt, done: Done) -> None:
        tries = 0

        def tried(leader: Leader, told: Done) -> None:
            nonlocal tries
            tries += 1
            if tries > 1 and self._run.unknown_outcome:
                self._run.count("batch retry with unknown outcome")

            def heard(result: object) -> None:
                if isinstance(result, tuple) and isinstance(result[0], KernelError):
                    self._run.count("publish of a gateway refused")
                told(result)

            attempt(leader, heard)

        self._request_pipeline.send(group, tried, done)

    # --- Definitions ------------------------------------------------------------------------

    def learn(self, topic: TopicId) -> None:
        """What anybody knows of a topic is known here a little later."""
        running = [each for each in self._run.machines.values() if each.runs]
        if not running:
            return
        machine = self._chance.choice(running)
        state = machine.member(home_of(topic)).state.topics.get(topic)
        if state is not None:
            late_s = self._chance.uniform(0, LATE_S_MAX)
            self._run.loop.call_later(late_s, self._learnt, state.info())

    def _learnt(self, info: TopicInfo) -> None:
        known = self.topology.topics.get((info.tenant, info.name))
        if known is None or known.version < info.version:
            self.topology.put_topic(info)

    def _resized(self, before: TopicInfo | None, after: TopicInfo | None) -> None:
        self.publisher.topic_changed(before, after)
        if before is not None and self.pending:
            self._run.count("ring learnt while something was on its way")

    # --- Publishing -------------------------------------------------------------------------

    def look(self, topics: list[TopicId]) -> None:
        """As the client does each second."""
        now = self._run.loop.time()
        if now - self._looked_s >= 1:
            self._looked_s = now
            self.publisher.fail_overdue_batches(self._run.clock.monotonic_ms())
            for each in topics:
                self.learn(each)

    def publish(self, topic: TopicId, name: str) -> None:
        """A batch of some messages of some keys."""
        chance = self._chance
        if chance.random() < LEARNS:
            self.learn(topic)
        info = self.topology.topics.get(("default", name))
        if info is None or self.pending >= PENDING_MAX:
            return
        run = self._run
        batch, to = ProducerBatch(self, self, ORIGIN), Found((info,))
        sent: list[Sent] = []
        for _ in range(chance.choice((1, 1, 3))):
            run.events += 1
            high, low = batch.uid()
            draft = run.draft(topic, chance)
            if draft.deduplication_id:  # it belongs to a key
                key = b"k%d" % chance.randrange(4)
                # Few of them, so that repeats come on both sides of a SEAL.
                ident = key + draft.deduplication_id[:2]
                draft = replace(draft, key=key, deduplication_id=ident)
            parts = draft.parts((high, low), 0)
            batch.add(to, parts, sum(map(len, parts)))
            one = _sent(topic, (high, low), draft)
            run.queues.sent[one.uid] = one
            sent.append(one)
        self._sent[batch] = sent
        self.publisher.submit(batch)

    def published(self, batch: PublishBatch) -> None:
        """A batch is answered."""
        rules = self._run.queues
        failures, duplicates = batch.failures or {}, batch.duplicates or {}
        for position, sent in enumerate(self._sent.pop(batch)):
            error = failures.get(position)
            if error is not None:
                sent.outcome = FAILED if error.code in REFUSED else UNKNOWN
                continue
            place = batch.place(position)
            if place is None:
                what = f"{sent.uid.hex()} has no place, and no error"
                self._run.broken("in_one_queue", what)
                continue
            rules.stored(sent, *place, original=duplicates.get(position, b""))


def _sent(topic: TopicId, uid: tuple[int, int], draft: Draft) -> Sent:
    return Sent(
        uid=uid[0].to_bytes(8, "big") + uid[1].to_bytes(8, "big"),
        producer=uid[0],
        number=uid[1],
        queue=int(topic) << 8,
        key=draft.key,
        ttl_ms=draft.ttl_ms,
        deduplication=draft.deduplication_id,
    )
