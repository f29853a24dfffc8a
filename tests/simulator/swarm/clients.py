"""Producers and consumers of a run. They know leaders only as clients do, and remember all."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from kernel.api import message as messages
from kernel.api.client import ConsumerSpec, LeaseVerb, Settlement
from kernel.api.model import DEFAULT_GROUP, DeadLetter, GroupOptions, Reason, TopicOptions
from kernel.broker.delivery.claims import claim
from kernel.broker.delivery.consumers import DispatchedConsumer, Handed
from kernel.broker.index.features import features_of
from kernel.broker.log_commands import commands
from kernel.common.errors import KernelError
from kernel.common.ids import Offset, QueueId, RaftGroup, TopicId, home_of, queue_id, topic_of
from kernel.requests.leader import Done, Leader, LeaseChanging
from kernel.requests.publish_part import Part
from kernel.requests.request_pipeline import RequestPipeline
from kernel.store.raft_groups.member import Member
from tests.simulator.peer import Draft

from .gateways import Gateway
from .link import SimulatedLink
from .queue_rules import FAILED, REFUSED, UNKNOWN, Sent

if TYPE_CHECKING:
    from .machines import Machine
    from .run import Run

DEDUPLICATION_MS = 30 * 24 * 3_600_000
"""Longer than all clock jumps of a run together."""
LEASE_MS = 2_000
DELAY_S_MAX = 0.02
KEPT_S_MAX = 4.0

GATEWAYS_FROM = 10

PENDING_MAX = 30
"""Publishes of one producer that wait for an answer: while no group has a leader more of them tell
nothing, and peace would be spent on them.
"""


def _topic(group: int, number: int) -> TopicId:
    return TopicId(group << 32 | number)


ORDERS, KEYS, TASKS, DEAD = _topic(1, 1), _topic(2, 1), _topic(3, 1), _topic(3, 2)

TOPICS: dict[TopicId, tuple[str, TopicOptions, GroupOptions]] = {
    ORDERS: (
        "orders",
        TopicOptions(queues=2, deduplication_ms=DEDUPLICATION_MS),
        GroupOptions(),
    ),
    KEYS: ("keys", TopicOptions(), GroupOptions(ordered=True)),
    DEAD: ("dead", TopicOptions(), GroupOptions()),
    TASKS: (
        "tasks",
        TopicOptions(),
        GroupOptions(attempts_max=4, dead_letter=DeadLetter(None, "dead")),
    ),
}

QUEUES = [
    *(queue_id(ORDERS, 0), queue_id(ORDERS, 1), queue_id(KEYS, 0)),
    *(queue_id(TASKS, 0), queue_id(DEAD, 0)),
]
PUBLISHED = QUEUES[:4]


RESIZABLE = {each: TOPICS[each][0] for each in (KEYS, TASKS, ORDERS)}


def draft_for(topic: TopicId, chance: random.Random, body_bytes_max: int) -> Draft:
    """A message of some kind. Deduplication ids belong to a queue."""
    return Draft(
        bytes(chance.randint(0, body_bytes_max)),
        ttl_ms=chance.choice((0, 0, 0, 500)) if topic == ORDERS else 0,
        delay_ms=chance.choice((0, 0, 0, 700)) if topic == TASKS else 0,
        key=b"k%d" % chance.randrange(4) if topic in (KEYS, TASKS) else b"",
        deduplication_id=b"d%d" % chance.randrange(30)
        if topic == ORDERS and chance.random() < 0.1
        else b"",
    )


def born_in(queue: QueueId) -> RaftGroup:
    """Raft group of a queue: every topic lies in the group of its name, until it is spread."""
    return home_of(TopicId(queue >> 8))


class Producer:
    """Publishes through a request pipeline: whatever breaks, once."""

    def __init__(self, run: Run, number: int) -> None:
        self._run = run
        self.number = number
        self._chance = random.Random(run.seed * 100 + number)
        self.link = SimulatedLink(run, run.seed * 100 + number)
        self._request_pipeline = RequestPipeline(self.link, run.clock, run.loop)
        self._sequence = 0
        self.pending = 0
        self.gateway = Gateway(run, GATEWAYS_FROM + number)
        """By which it publishes to topics that are resized."""

    def administer(self, topic: TopicId) -> None:
        """Create a topic."""
        name, options, group = TOPICS[topic]
        change = commands.PutTopic(
            "default",
            name,
            options,
            {DEFAULT_GROUP: group},
            must_be_new=False,
            ident=topic,
            placement=(home_of(topic),) * options.queues,
        )
        self._sequence += 1
        identity = (self.number, 1, self._sequence)
        self._send(home_of(topic), lambda leader, done: leader.propose(change, identity, done))

    def _send(self, group: RaftGroup, attempt: object, heard: Done | None = None) -> None:
        self.pending += 1

        def done(result: object) -> None:
            self.pending -= 1
            if heard is not None:
                heard(result)

        self._request_pipeline.send(group, attempt, done)  # type: ignore[arg-type]

    def publish(self) -> None:
        """One message, of some kind, to some queue."""
        if self.pending >= PENDING_MAX:
            return
        chance = self._chance
        queue = chance.choice(PUBLISHED)
        if topic_of(queue) in self._run.resizer.topics:
            self.gateway.publish(topic_of(queue), TOPICS[topic_of(queue)][0])
            return
        self._run.events += 1
        self._sequence += 1
        number = self._sequence
        draft = self._run.draft(topic_of(queue), chance)
        if draft.deduplication_id:
            draft = Draft(draft.body, deduplication_id=b"%d" % queue + draft.deduplication_id)
        parts = draft.parts((self.number, number), 0)
        size = sum(map(len, parts))
        features = features_of(parts[0])
        uid = self.number.to_bytes(8, "big") + number.to_bytes(8, "big")
        sent = Sent(
            uid=uid,
            producer=self.number,
            number=number,
            queue=int(queue),
            key=draft.key,
            ttl_ms=draft.ttl_ms,
            deduplication=draft.deduplication_id,
        )
        rules = self._run.queues
        rules.sent[uid] = sent
        tries = 0

        def attempt(leader: Leader, done: Done) -> None:
            nonlocal tries
            tries += 1
            if tries > 1 and self._run.unknown_outcome:
                self._run.count("batch retry with unknown outcome")

            def told(result: object) -> None:
                if isinstance(result, tuple) and isinstance(result[0], KernelError):
                    rules.refused(sent, result[0].code)
                done(result)

            identity = (self.number, 1, number)
            part = Part([[queue, 0, 1, features]], [size], [*parts])
            leader.publish(identity, part, told, 0)

        def heard(result: object) -> None:
            assert isinstance(result, tuple)
            error = result[0]
            if isinstance(error, KernelError):
                sent.outcome = FAILED if error.code in REFUSED else UNKNOWN
            elif isinstance(error, list):
                rules.published(sent, error[0])

        self._send(self._run.group_of(queue), attempt, heard)


class Attachment:
    """`ConsumerSink` of one consumer, at one process of a leader."""

    def __init__(self, run: Run, subscriber: Subscriber, machine: Machine, member: Member) -> None:
        self._run = run
        self._subscriber = subscriber
        self.machine = machine
        self.process = machine.process
        self.member = member
        self.term = member.core.term
        self.consumer: DispatchedConsumer | None = None

    @property
    def lives(self) -> bool:
        """Whether the process is still there."""
        return self.machine.runs and self.machine.process == self.process

    def deliver(self, consumer: DispatchedConsumer, handed: Handed) -> None:
        """At the leader: some turns later it reaches the client."""
        if self.lives:
            self._run.events += len(handed.offsets)
            self._run.queues.handed(self.member, DEFAULT_GROUP, handed)
            self._subscriber.get(self, handed)

    def consumer_ended(self, consumer: DispatchedConsumer, error: KernelError) -> None:
        """It leads no more."""
        self._subscriber.lose(self)


class Subscriber:
    """A consumer of one queue: pushed to, or with timed leases, at whoever leads."""

    def __init__(self, run: Run, number: int, queue: QueueId) -> None:
        self._run = run
        self._chance = random.Random(run.seed * 100 + 50 + number)
        self.number = number
        self.queue = queue
        self.timed = queue >> 8 == TASKS or (queue >> 8 == KEYS and run.seed % 2 == 1)
        self.link = SimulatedLink(run, run.seed * 100 + 50 + number)
        self._request_pipeline = RequestPipeline(self.link, run.clock, run.loop)
        self._sequence = 0
        self._at: Attachment | None = None
        self._kept: dict[int, bytes] = {}
        """What its client has not settled yet, pushed by whatever leader: offset to uid."""

    # --- Attaching --------------------------------------------------------------------------

    def look_around(self) -> None:
        """Attach, if it is not; grant more otherwise."""
        at = self._at
        consumer = at.consumer if at is not None else None
        if self._run.draining and consumer is not None and consumer.spec.lease_ms == 0:
            self.disconnect()
            at = None
        if at is None or not at.lives:
            at = self._attach()
        if at is not None and at.consumer is not None and at.consumer.credit < 3:
            at.consumer.grant(self._chance.randint(1, 5))

    def _attach(self) -> Attachment | None:
        self._at = None
        group = self._run.group_of(self.queue)
        machine = self._run.someone_who_leads(group, self._chance)
        if machine is None or not machine.serves(group):
            return None
        member = machine.member(group)
        state = member.state.queues.get(self.queue)
        if state is None:
            return None
        spec = ConsumerSpec(
            state.topic.info(),
            DEFAULT_GROUP,
            None,
            lease_ms=self._lease_ms() if self.timed else None,
            pull=self.timed,
            fair=self._run.seed % 3 == 1,
        )
        at = self._at = Attachment(self._run, self, machine, member)
        dispatcher = member.replica.dispatcher(self.queue, DEFAULT_GROUP)
        at.consumer = dispatcher.attach(spec, at)
        if member.replica.awaits_claims and self._kept:
            claim(dispatcher, at.consumer, self._kept)
            self._run.queues.claimed(member, int(self.queue), at.consumer)
        self._kept = {each: uid for each, uid in self._kept.items() if each in at.consumer.held}
        return at

    def _lease_ms(self) -> int:
        """An ordered group takes no ack once the lease is over: only with leases that last is it
        drained.
        """
        lease_ms = self._chance.choice((LEASE_MS, LEASE_MS, 0))
        return LEASE_MS if self._run.draining else lease_ms

    def disconnect(self) -> None:
        """End: what it holds returns."""
        at, self._at = self._at, None
        self._kept.clear()
        if at is None or at.consumer is None or not at.lives:
            return
        self._run.events += 1
        consumer = at.consumer
        held = sorted(consumer.held)
        consumer.cancel()
        if held:
            settle = consumer.dispatcher.settle
            settle(consumer, Settlement.RELEASE, held, Reason.REJECTED, urgent=False)

    def lose(self, at: Attachment) -> None:
        """The leader has ended the consumer."""
        if at is self._at:
            self._at = None

    def get(self, at: Attachment, handed: Handed) -> None:
        """Messages are on their way. As a pull does, one whose leases end at once takes no more
        before it is asked again.
        """
        if at.consumer is not None and at.consumer.spec.lease_ms == 0:
            at.consumer.pool.left = 0
        later = self._chance.uniform(0.001, DELAY_S_MAX)
        self._run.loop.call_later(later, self._got, at, handed)

    # --- Settling ---------------------------------------------------------------------------

    def _got(self, at: Attachment, handed: Handed) -> None:
        if at is not self._at or not at.lives:
            return
        consumer = at.consumer
        assert consumer is not None
        for offset, slot in zip(handed.offsets, handed.slots, strict=True):
            fate = self._chance.random() if not self._run.draining else 1.0
            uid = messages.decode(slot).uid
            if self.timed:
                self._settle_lease(offset, handed.lease, uid, fate)
            else:
                self._settle_push(at, offset, uid, fate)

    def _settle_push(self, at: Attachment, offset: int, uid: bytes, fate: float) -> None:
        consumer = at.consumer
        assert consumer is not None
        if offset not in consumer.held:
            return
        rules = self._run.queues
        known = rules.known[int(self.queue), offset]
        dispatcher = consumer.dispatcher
        if fate < 0.05:
            known.returned = True
            dispatcher.settle(consumer, Settlement.RETURN, [offset], Reason.REJECTED, urgent=False)
            return
        if fate < 0.1:
            dispatcher.settle(consumer, Settlement.RELEASE, [offset], Reason.REJECTED, urgent=False)
            return
        if fate < 0.1 + self._run.levels.patience:
            self._kept[offset] = uid
            wait_s = self._chance.uniform(0.2, KEPT_S_MAX)
            self._run.loop.call_later(wait_s, self._settle_kept, offset)
            return
        answered = fate >= 0.5
        dispatcher.settle(consumer, Settlement.ACK, [offset], Reason.REJECTED, urgent=answered)
        if answered:
            self._answer_ack(at, offset, uid)

    def _settle_kept(self, offset: int) -> None:
        """What was kept is done with: at whoever leads by now, if it could be claimed there."""
        at = self._at
        if offset not in self._kept:
            return
        if at is None or not at.lives or at.consumer is None:
            self._run.loop.call_later(KEPT_S_MAX / 10, self._settle_kept, offset)
            return
        uid = self._kept.pop(offset)
        if offset in at.consumer.held:
            settle = at.consumer.dispatcher.settle
            settle(at.consumer, Settlement.ACK, [offset], Reason.REJECTED, urgent=True)
            self._answer_ack(at, offset, uid)

    def _answer_ack(self, at: Attachment, offset: int, uid: bytes) -> None:
        """Hear of the entry that the ack stands in, as a client that asks for an answer does."""

        def settled(result: object) -> None:
            if at.lives and not isinstance(result, KernelError):
                self._run.events += 1
                self._run.queues.known[int(self.queue), offset].acked_by = 0
                self._run.queues.received(uid)

        at.member.replica.open.wait(settled)
        at.machine.opened.store.dirty(at.member.replica, urgent=True)

    def _settle_lease(self, offset: int, lease: int, uid: bytes, fate: float) -> None:
        run = self._run
        known = run.queues.known[int(self.queue), offset]
        if fate < run.levels.patience:
            return  # kept until it runs out; perhaps acked too late
        verb, delay_ms = LeaseVerb.ACK, 0
        if run.draining:
            pass
        elif fate > 0.95:
            verb, delay_ms = LeaseVerb.RELEASE, self._chance.choice((0, 300))
        elif fate > 0.9:
            verb = LeaseVerb.RETURN
        if verb is not LeaseVerb.ACK:
            known.let_go = True
            known.returned = known.returned or verb is LeaseVerb.RETURN
        change = LeaseChanging(Offset(offset), lease, verb, Reason.REJECTED, delay_ms)
        self._sequence += 1
        identity = (1_000 + self.number, 1, self._sequence)
        queue = self.queue

        def attempt(leader: Leader, done: Done) -> None:
            leader.change_leases(queue, DEFAULT_GROUP, [change], identity, done, 0)

        def heard(result: object) -> None:
            run.events += 1
            assert isinstance(result, tuple)
            good = result[0]
            if verb is LeaseVerb.ACK and isinstance(good, list):
                run.queues.acked_by_lease((int(queue), offset), lease, good[0])
                if good[0]:
                    run.queues.received(uid)

        late = self._chance.random() < 0.1 and not run.draining
        wait_s = LEASE_MS / 1000 * self._chance.uniform(0.9, 2) if late else 0.0
        group = run.group_of(queue)
        run.loop.call_later(wait_s, self._request_pipeline.send, group, attempt, heard)
