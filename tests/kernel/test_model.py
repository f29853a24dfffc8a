"""Clients, consumers, time, restarts and crashes at random, against a naive model.

40 runs of 30 steps; WEIR_MODEL_RUNS=1000 for a long search (a second of CPU for ten runs).
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from functools import partial

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kernel.api.client import DeleteTopic, PurgeTopic, Settlement
from kernel.api.model import (
    DEFAULT_GROUP,
    DEFAULT_TENANT,
    DeadLetter,
    GroupOptions,
    Overflow,
    TopicInfo,
    TopicOptions,
)
from kernel.common.errors import Code, KernelError
from tests.kernel.naive import Consumer, NaiveTopic, Note, Where, pick, trimmed_to
from tests.simulator.peer import Draft, Recorder
from tests.simulator.world import World, figures_of

TOPICS = ("durable", "transient")
RECORDERS_MAX = 4
BRIEF_MS = 1_000

HOWS = (Settlement.ACK, Settlement.RELEASE, Settlement.RETURN, Settlement.DEAD_LETTER)
"""What a client may say; the rest is the kernel's own."""

topics = st.sampled_from(TOPICS)
numbers = st.integers(0, RECORDERS_MAX - 1)
picks = st.sets(st.integers(0, 7), min_size=1, max_size=6)
drafts = st.lists(
    st.tuples(st.sampled_from((0, 0, 1, 2, 9)), st.sampled_from((0, 0, 0, BRIEF_MS, 10_000))),
    min_size=1,
    max_size=6,
)


class Kernel(RuleBasedStateMachine):
    """See the module's head. Each rule acts, lets the store come to rest, and checks."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(started=False)
        self.models: dict[str, NaiveTopic] = {}
        self.infos: dict[str, TopicInfo] = {}
        self.consumers: list[Consumer] = []
        self.first: dict[tuple[str, int], int] = {}
        """By topic and level: the highest offset of a first delivery."""
        self.dead: Counter[bytes] = Counter()
        """Dead letters of topics that are no more."""
        self.sent = 0
        self.calm_steps = 0
        """Since something was last taken away: a run needs time to get anywhere."""

    @initialize(
        priority_max=st.sampled_from((0, 0, 2)),
        ttl_ms=st.sampled_from((None, None, 5_000)),
        retention_ms=st.sampled_from((None, None, 8_000)),
        messages_max=st.sampled_from((None, None, 3)),
        overflow=st.sampled_from((Overflow.DROP_OLDEST, Overflow.REJECT)),
        attempts_max=st.sampled_from((None, 2, 3)),
        dead_letter=st.sampled_from((None, DeadLetter(None, "dead"))),
        single=st.sampled_from((False, False, True)),
    )
    def begin(
        self,
        priority_max: int,
        ttl_ms: int | None,
        retention_ms: int | None,
        messages_max: int | None,
        overflow: Overflow,
        attempts_max: int | None,
        dead_letter: DeadLetter | None,
        single: bool,
    ) -> None:
        self.options = TopicOptions(
            priority_max=priority_max,
            message_ttl_ms=ttl_ms,
            retention_ms=retention_ms,
            messages_max=messages_max,
            overflow=overflow,
        )
        self.group = GroupOptions(
            attempts_max=attempts_max, dead_letter=dead_letter, single_active_consumer=single
        )

        async def prepare() -> None:
            await self.world.start()
            self.peer = self.world.peer()
            await self.peer.topic("dead")
            for name in TOPICS:
                await self._create(name)

        self.world.run(prepare())

    async def _create(self, name: str) -> None:
        options = TopicOptions(
            durable=name == "durable",
            priority_max=self.options.priority_max,
            message_ttl_ms=self.options.message_ttl_ms,
            retention_ms=self.options.retention_ms,
            messages_max=self.options.messages_max,
            overflow=self.options.overflow,
        )
        self.infos[name] = await self.peer.topic(name, options, self.group)
        self.models[name] = NaiveTopic(options, self.group)
        for level in range(options.priority_max + 1):
            self.first[name, level] = -1

    # --- Rules ------------------------------------------------------------------------------

    @rule(name=topics, wanted=drafts)
    def publish(self, name: str, wanted: list[tuple[int, int]]) -> None:
        model = self.models[name]
        room = model.room()
        messages: list[Draft] = []
        for priority, ttl_ms in wanted:
            self.sent += 1
            messages.append(Draft(b"%d" % self.sent, priority=priority, ttl_ms=ttl_ms))
        now_ms = self.world.clock.wall_ms()

        async def act() -> None:
            sent = await self.peer.publish(self.infos[name], *messages)
            refused = [] if room is None else list(range(room, len(messages)))
            assert sorted(sent.failures) == refused
            assert all(each.code is Code.REJECTED for each in sent.failures.values())

        for draft in messages[:room]:
            model.append(draft.body, draft.priority, draft.ttl_ms, now_ms)
        self._do(act, published=name)

    @precondition(lambda self: len(self.consumers) < RECORDERS_MAX)
    @rule(
        name=topics,
        priority=st.sampled_from((0, 0, 5)),
        exclusive=st.sampled_from((False, False, False, True)),
        auto_ack=st.sampled_from((False, False, True)),
        own_session=st.booleans(),
        credit=st.sampled_from((0, 1, 2, 10)),
    )
    def attach(
        self,
        name: str,
        priority: int,
        exclusive: bool,
        auto_ack: bool,
        own_session: bool,
        credit: int,
    ) -> None:
        others = self._attached(name)
        locked = any(each.exclusive for each in others) or (exclusive and bool(others))
        peer = self.world.peer() if own_session else self.peer

        async def act() -> None:
            def join() -> Recorder:
                return peer.attach(
                    self.infos[name], priority=priority, exclusive=exclusive, auto_ack=auto_ack
                )

            if locked:
                with pytest.raises(KernelError) as refused:
                    join()
                assert refused.value.code is Code.LOCKED
                return
            recorder = join()
            recorder.grant(credit)
            self.consumers.append(
                Consumer(name, recorder, peer, priority, exclusive, auto_ack, credit)
            )

        self._do(act)

    @precondition(lambda self: self._live)
    @rule(number=numbers, credit=st.sampled_from((1, 2, 3, 10, -1)))
    def grant(self, number: int, credit: int) -> None:
        consumer = pick(number, self._live)

        async def act() -> None:
            consumer.recorder.grant(credit)
            consumer.credit += credit

        self._do(act)

    @precondition(lambda self: self._live and self.calm_steps > 3)
    @rule(number=numbers)
    def cancel(self, number: int) -> None:
        consumer = pick(number, self._live)
        self.calm_steps = 0

        async def act() -> None:
            consumer.recorder.cancel()
            consumer.cancelled = True

        self._do(act)

    @precondition(lambda self: self._holders)
    @rule(
        number=numbers,
        chosen=picks,
        how=st.sampled_from([*HOWS, Settlement.ACK, Settlement.ACK]),
        answered=st.booleans(),
    )
    def settle(self, number: int, chosen: set[int], how: Settlement, answered: bool) -> None:
        consumer = pick(number, self._holders)
        held = sorted(consumer.rows)
        offsets = [held[at] for at in sorted(chosen) if at < len(held)] or held[:1]
        model = self.models[consumer.topic]
        rows = [consumer.rows.pop(offset) for offset in offsets]
        {
            Settlement.ACK: model.ack,
            Settlement.RELEASE: model.release,
            Settlement.RETURN: model.give_back,
            Settlement.DEAD_LETTER: model.reject,
        }[how](offsets)

        async def act() -> None:
            if answered:
                assert await consumer.recorder.settle(how, *rows) == {}
            else:
                consumer.recorder.settle_now(how, *rows)

        self._do(act)

    @precondition(lambda self: self.consumers)
    @rule(number=numbers, offset=st.integers(0, 20))
    def settle_what_is_not_held(self, number: int, offset: int) -> None:
        consumer = pick(number, self.consumers)
        if offset not in consumer.rows:

            async def act() -> None:
                for how in HOWS:
                    failures = await consumer.recorder.settle(how, offset)
                    assert {at: each.code for at, each in failures.items()} == {
                        offset: Code.LEASE_LOST
                    }

            self._do(act)

    @precondition(lambda self: self.calm_steps > 4)
    @rule(name=topics)
    def purge(self, name: str) -> None:
        expected = self.models[name].purge()
        self.calm_steps = 0

        async def act() -> None:
            change = PurgeTopic(DEFAULT_TENANT, name, DEFAULT_GROUP)
            assert await self.world.client.administer(change) == expected

        self._do(act)

    @rule(ms=st.sampled_from((10, BRIEF_MS, 6_000)))
    def wait(self, ms: int) -> None:
        calm_steps, clock = self.calm_steps, self.world.clock
        until_ms = clock.wall_ms() + ms
        while (now_ms := clock.wall_ms()) < until_ms:
            pause_ms = min(each.pause(now_ms, until_ms) for each in self.models.values()) - now_ms
            self._do(partial(asyncio.sleep, pause_ms / 1000))
        self.calm_steps = calm_steps + 1

    @precondition(lambda self: self.calm_steps > 8)
    @rule(name=topics)
    def recreate(self, name: str) -> None:
        expected = self.models[name].count(Where.READY)
        self.calm_steps = 0

        async def act() -> None:
            change = DeleteTopic(DEFAULT_TENANT, name)
            assert await self.world.client.administer(change) == expected
            await self.world.settle_down()
            for consumer in [each for each in self.consumers if each.topic == name]:
                if not consumer.cancelled:
                    assert consumer.recorder.error is not None
                    assert consumer.recorder.error.code is Code.NOT_FOUND
                self.consumers.remove(consumer)
            self.dead += self.models[name].dead
            await self._create(name)

        self._do(act)

    @precondition(lambda self: self._gateways and self.calm_steps > 3)
    @rule(number=numbers)
    def close_session(self, number: int) -> None:
        consumer = pick(number, self._gateways)
        self.calm_steps = 0

        async def act() -> None:
            self._close(consumer)

        self._do(act)

    def _close(self, consumer: Consumer) -> None:
        consumer.peer.close()
        self.consumers.remove(consumer)
        self.models[consumer.topic].release(sorted(consumer.rows))

    async def _close_all(self) -> None:
        """Nobody may get what another one leaves, unseen by the model: so first no more credit."""
        for consumer in self._live:
            consumer.recorder.grant(-consumer.credit)
        for consumer in list(self.consumers):
            self._close(consumer)
        self.peer.close()
        await self.world.settle_down()
        for model in self.models.values():
            model.expire(self.world.clock.wall_ms())

    @precondition(lambda self: self.calm_steps > 8)
    @rule(crash=st.booleans())
    def restart(self, crash: bool) -> None:
        self.calm_steps = 0

        async def act() -> None:
            if crash:
                self.models["durable"].crash()
                await self.world.crash()
            else:
                await self._close_all()
                await self.world.restart()
            self.consumers.clear()
            self.dead += self.models["transient"].dead
            self.peer = self.world.peer()
            info = self.world.client.topic(DEFAULT_TENANT, "durable")
            assert info is not None
            self.infos["durable"] = info
            assert self.world.client.topic(DEFAULT_TENANT, "transient") is None
            await self._create("transient")

        self._do(act, published="durable")

    # --- What must be after every rule ------------------------------------------------------

    def _do(self, act, published: str | None = None) -> None:
        """Act, let the store come to rest, move the model on by what was heard."""
        self.calm_steps += 1
        before = {name: set(map(id, model.ready())) for name, model in self.models.items()}

        async def scenario() -> None:
            await act()
            await self.world.settle_down()

        self.world.run(scenario())
        now_ms = self.world.clock.wall_ms()
        for name, model in self.models.items():
            self._hear(name, model, before[name], now_ms)
            model.trim(trimmed_to(self.world, self.infos[name]), now_ms)
            model.expire(now_ms)
            if published == name:
                model.drop_excess()
                model.expire(now_ms)

    def _hear(self, name: str, model: NaiveTopic, before: set[int], now_ms: int) -> None:
        delivered: list[Note] = []
        served: list[Consumer] = []
        for consumer in self.consumers:
            if consumer.topic != name:
                continue
            rows = consumer.recorder.got[consumer.heard :]
            consumer.heard += len(rows)
            consumer.credit -= len(rows)
            for row in rows:
                note = model.deliver(row.offset, row.body, row.attempt, acked=consumer.auto_ack)
                assert not note.has_expired(now_ms), f"{row.body!r} had expired"
                delivered.append(note)
                if not consumer.auto_ack:
                    consumer.rows[row.offset] = row
            assert consumer.credit >= 0 or not rows
            if rows:
                served.append(consumer)
        self._check_order(name, model, delivered, before)
        able = [each for each in self._attached(name) if each.credit > 0]
        if self.group.single_active_consumer:
            able = [each for each in able if each is self._attached(name)[0]]
            assert all(each is self._attached(name)[0] for each in served)
        for consumer in served:
            higher = [each for each in able if each.priority > consumer.priority]
            assert self.group.single_active_consumer or not higher, "a higher one was passed over"
        model.drop_passed_over(delivered, now_ms, has_recorders=bool(able))
        if able:
            assert model.count(Where.READY) == 0, "somebody would take what is ready"

    def _check_order(
        self, name: str, model: NaiveTopic, delivered: list[Note], before: set[int]
    ) -> None:
        """What was delivered came before what was left, and first deliveries go upwards."""
        waiting = [note for note in model.ready() if id(note) in before]
        if waiting and delivered:
            now_ms = self.world.clock.wall_ms()
            left = [note.key for note in waiting if not note.has_expired(now_ms)]
            assert not left or max(note.key for note in delivered) < min(left), "out of order"
        for note in sorted(delivered, key=lambda note: note.offset):
            if not note.seen:
                assert note.offset > self.first[name, note.level], "a first delivery came late"
                self.first[name, note.level] = note.offset
                note.seen = True

    def _attached(self, name: str) -> list[Consumer]:
        return [each for each in self.consumers if each.topic == name and not each.cancelled]

    @property
    def _live(self) -> list[Consumer]:
        return [each for each in self.consumers if not each.cancelled]

    @property
    def _holders(self) -> list[Consumer]:
        return [each for each in self.consumers if each.rows]

    @property
    def _gateways(self) -> list[Consumer]:  # with a session of their own
        return [each for each in self.consumers if each.peer is not self.peer]

    @invariant()
    def figures_are_the_models(self) -> None:
        if not self.models:
            return
        client = self.world.client
        for name, model in self.models.items():
            found = figures_of(client, self.infos[name])
            assert (found.ready, found.leased, found.consumers, found.delayed) == (
                model.count(Where.READY),
                model.count(Where.HELD, Where.LAPSED),
                len(self._attached(name)),
                0,
            ), name
            assert found.expired == model.expired
        dead = client.topic(DEFAULT_TENANT, "dead")
        assert dead is not None
        dead_letters = figures_of(client, dead).ready
        assert dead_letters == sum(self._dead_letters().values())

    def _dead_letters(self) -> Counter[bytes]:
        dead_letters = Counter(self.dead)
        for model in self.models.values():
            dead_letters += model.dead
        return dead_letters

    @invariant()
    def logs_hold_no_more_than_is_needed(self) -> None:
        if not self.models:
            return
        opened = self.world.opened
        needed = {
            name: any(note.where in {Where.READY, Where.HELD} for note in model.notes)
            for name, model in self.models.items()
        }
        if not needed["transient"]:
            assert opened.store.transient_log.count == 0
        if not needed["durable"] and not self._dead_letters():
            assert opened.store.journal.statistics().live_entries == 0

    def teardown(self) -> None:
        """Everything that is left is delivered, in order, and then nothing is."""
        try:
            if self.models:
                self.world.run(self._drain())
                assert self.world.fatal == []
        finally:
            self.world.close()

    async def _drain(self) -> None:
        await self._close_all()
        now_ms = self.world.clock.wall_ms()
        peer = self.world.peer()
        for name, model in self.models.items():
            expected = [note.body for note in model.ready() if not note.has_expired(now_ms)]
            model.drop_passed_over((), now_ms, has_recorders=True)
            recorder = peer.attach(self.infos[name], credit=10_000)
            await self.world.settle_down()
            assert recorder.bodies == expected
            await recorder.ack()
        dead = self.world.client.topic(DEFAULT_TENANT, "dead")
        assert dead is not None
        recorder = peer.attach(dead, credit=10_000)
        await self.world.settle_down()
        assert Counter(recorder.bodies) == self._dead_letters()
        await recorder.ack()
        assert self.world.opened.store.transient_log.count == 0
        assert self.world.opened.store.journal.statistics().live_entries == 0


TestKernel = Kernel.TestCase
TestKernel.settings = settings(
    deadline=None,
    max_examples=int(os.environ.get("WEIR_MODEL_RUNS", "40")),
    stateful_step_count=30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
