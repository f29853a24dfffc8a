"""The fixed run of the crash sweep: clients at work on one store, told to a `Ledger`.

Every call notes what it makes doubtful before, and what it makes certain when the answer is heard,
in the very turn in which a client would hear it.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

from kernel.api.client import DeleteRoute, DeleteTopic, PurgeTopic, PutRoute, PutRouter, Settlement
from kernel.api.message import HEADER
from kernel.api.model import (
    DEFAULT_GROUP,
    DEFAULT_TENANT,
    DeadLetter,
    GroupOptions,
    HalfOptions,
    Match,
    Route,
    RouterOptions,
    TopicInfo,
    TopicOptions,
)
from tests.kernel.ledger import Ledger, Thing
from tests.simulator.peer import Delivery, Draft, Failures, Peer, Recorder, Sent
from tests.simulator.world import World

TO_DEAD = GroupOptions(dead_letter=DeadLetter(None, "dead"), attempts_max=4)
TOPICS: dict[str, tuple[TopicOptions, GroupOptions]] = {
    "dead": (TopicOptions(), GroupOptions()),
    "orders": (TopicOptions(), TO_DEAD),
    "bills": (TopicOptions(bytes_max=10**9), GroupOptions()),
    "stock": (TopicOptions(), GroupOptions()),
    "mail": (TopicOptions(), GroupOptions()),
    "ranks": (TopicOptions(priority_max=9), GroupOptions()),
    "spread": (TopicOptions(queues=4), GroupOptions()),
    "fading": (TopicOptions(), TO_DEAD),
    "deals": (TopicOptions(half=HalfOptions(checks_max=10**9), bytes_max=10**9), GroupOptions()),
}
WIRED = ("orders", "bills", "stock", "mail")
"""Topics behind the router `news`."""
CONSUMED = ("orders", "bills", "stock", "mail", "ranks", "spread", "dead", "deals")
CREDIT = 12
EXPIRES_MS = 2_500
STUCK_EVERY = 12
"""One message in so many is never acked, so that segments stay that are nearly empty."""

CHECKPOINT_EVERY = 11
"""Operations from one checkpoint to the next: what recovery has to scan decides what the sweep
costs."""


def is_stuck(row: Delivery) -> bool:
    return row.uid[-1] % STUCK_EVERY == 0


def priority_of(slot: bytes) -> int:
    priority: int = HEADER.unpack_from(slot)[2]
    return priority


class Run:
    """The clients: one publishes and administers, one consumes."""

    def __init__(self, world: World, ledger: Ledger, seed: int) -> None:
        self.world = world
        self.ledger = ledger
        self.done: Counter[str] = Counter()
        """Operations by kind."""
        self._chance = random.Random(seed)
        self._number = 0
        self._writer: Peer
        self._reader: Peer
        self._topics: dict[str, TopicInfo] = {}
        self._takers: dict[str, Recorder] = {}
        self._halves: dict[bytes, bytes] = {}
        """Uid to token of the half messages without an outcome."""
        ledger.unordered.add("dead")
        self._kinds: dict[Callable[[], Awaitable[None]], int] = {
            self._publish: 30,
            self._publish_routed: 12,
            self._publish_ranked: 8,
            self._publish_brief: 6,
            self._ack: 45,
            self._ack_quietly: 6,
            self._release: 6,
            self._dead_letter: 9,
            self._prepare: 8,
            self._commit: 5,
            self._roll_back: 3,
            self._purge: 3,
            self._recreate: 3,
            self._reroute: 4,
            self._reconnect: 2,
        }

    async def prepare(self) -> None:
        """Make the names, attach the consumers: each step an operation of its own."""
        self._writer, self._reader = self.world.peer("writer"), self.world.peer("reader")
        for name in TOPICS:
            await self._make(name)
        for router, match in (("news", Match.ALL), ("desk", Match.EXACT)):
            await self._certain(
                f"router {router}", PutRouter(DEFAULT_TENANT, router, RouterOptions(match=match))
            )
        for name in WIRED:
            await self._wire(name)
        self._attach()

    async def step(self) -> None:
        """One operation, chosen by the seed; a checkpoint now and then."""
        if sum(self.done.values()) % CHECKPOINT_EVERY == 0:
            self.done["sleep"] += 1
            await self._sleep(whole=self.done["sleep"] % 2 == 0)
            return
        kinds = list(self._kinds)
        weights = list(self._kinds.values())
        (operation,) = self._chance.choices(kinds, weights)
        self.done[operation.__name__.strip("_")] += 1
        await operation()

    async def end(self) -> None:
        """Wait out every expiry."""
        await asyncio.sleep(EXPIRES_MS / 1000 + 1)

    # --- Names ------------------------------------------------------------------------------

    async def _certain(self, name: str, change: object, thing: Thing = Thing.THERE) -> object:
        """Make a change of a name; in doubt until it is answered."""
        self.done["administer"] += 1
        self.ledger.names[name] = Thing.DOUBTFUL
        result = await self.world.client.administer(change)  # type: ignore[arg-type]
        self.ledger.names[name] = thing
        return result

    async def _make(self, name: str) -> None:
        options, group = TOPICS[name]
        self.done["administer"] += 1
        self.ledger.names[f"topic {name}"] = Thing.DOUBTFUL
        self._topics[name] = await self._writer.topic(name, options, group)
        self.ledger.names[f"topic {name}"] = Thing.THERE

    async def _wire(self, name: str) -> None:
        change = PutRoute(DEFAULT_TENANT, "news", Route(topic=name))
        await self._certain(f"route news {name}", change)

    def _attach(self, *names: str) -> None:
        for name in names or CONSUMED:
            self._takers[name] = self._reader.attach(self._topics[name], credit=CREDIT)

    async def _recreate(self) -> None:
        for uid in self.ledger.in_topic("mail"):
            self.ledger.leaving("mail", uid)
        uids = self.ledger.in_topic("mail")
        self.ledger.names["route news mail"] = Thing.DOUBTFUL
        await self._certain("topic mail", DeleteTopic(DEFAULT_TENANT, "mail"), Thing.GONE)
        self.ledger.names["route news mail"] = Thing.GONE
        for uid in uids:
            self.ledger.left("mail", uid)
        await self._make("mail")
        await self._wire("mail")
        self._attach("mail")

    async def _reroute(self) -> None:
        route = Route(key="k", topic="bills")
        name = "route desk bills"
        if self.ledger.names.get(name) is Thing.THERE:
            change: object = DeleteRoute(DEFAULT_TENANT, "desk", route)
            await self._certain(name, change, Thing.GONE)
        else:
            await self._certain(name, PutRoute(DEFAULT_TENANT, "desk", route))

    async def _purge(self) -> None:
        held = {row.uid for row in self._takers["stock"].held.values()}
        uids = [uid for uid in self.ledger.in_topic("stock") if uid not in held]
        for uid in uids:
            self.ledger.leaving("stock", uid)
        change = PurgeTopic(DEFAULT_TENANT, "stock", DEFAULT_GROUP)
        assert await self.world.client.administer(change) <= len(uids)  # type: ignore[operator]
        for uid in uids:
            self.ledger.left("stock", uid)

    # --- Publishing -------------------------------------------------------------------------

    def _drafts(self, **fields: int) -> list[Draft]:
        chance = self._chance
        drafts = []
        for _ in range(chance.choice((1, 1, 2, 4))):
            self._number += 1
            filler = b"." * chance.choice((10, 300, 1_500))
            drafts.append(Draft(b"%d " % self._number + filler, **fields))
        return drafts

    async def _send(self, names: tuple[str, ...], drafts: list[Draft], to: object = None) -> Sent:
        """Publish to the topics `names` (which `to` leads to)."""

        def heard(sent: Sent) -> None:
            assert not sent.failures
            for name in names:
                for uid in sent.uids:
                    self.ledger.confirmed(name, uid)

        target = to if to is not None else self._topics[names[0]]
        sent = self._writer.submit(target, *drafts, heard=heard)  # type: ignore[arg-type]
        for draft, uid in zip(drafts, sent.uids, strict=True):
            for name in names:
                self.ledger.submitted(name, uid, draft.body)
        await sent.done
        return sent

    async def _publish(self) -> None:
        name = self._chance.choice(("orders", "bills", "stock", "mail", "spread", "spread"))
        await self._send((name,), self._drafts())

    async def _publish_routed(self) -> None:
        to = self.world.client.to_router(DEFAULT_TENANT, "news", "")
        assert to.count == len(WIRED)
        await self._send(WIRED, self._drafts(), to)

    async def _publish_ranked(self) -> None:
        for priority in self._chance.sample(range(10), 3):
            await self._send(("ranks",), self._drafts(priority=priority))

    async def _publish_brief(self) -> None:
        ttl_ms = self._chance.choice((EXPIRES_MS, 3_600_000))
        before_ms = self.world.clock.wall_ms()
        sent = await self._send(("fading",), self._drafts(ttl_ms=ttl_ms))
        for uid in sent.uids:
            self.ledger.may_become_dead_letter("fading", uid, "dead", before_ms + ttl_ms)

    # --- Half messages ----------------------------------------------------------------------

    async def _prepare(self) -> None:
        (draft, *_) = self._drafts()
        high, low = self.world.client.batch(self._writer.session, self._writer).uid()
        uid = high.to_bytes(8, "big") + low.to_bytes(8, "big")
        self.ledger.bodies[uid] = draft.body
        self.ledger.halves[uid] = Thing.DOUBTFUL
        parts = draft.parts((high, low), 0)
        halves = self.world.client.halves
        self._halves[uid] = await halves.prepare(self._topics["deals"], "sellers", parts)
        self.ledger.halves[uid] = Thing.THERE

    async def _commit(self) -> None:
        if self._halves:
            uid = self._chance.choice(list(self._halves))
            self.ledger.submitted("deals", uid, self.ledger.bodies[uid])
            await self._end(uid, commit=True)
            self.ledger.confirmed("deals", uid)

    async def _roll_back(self) -> None:
        if self._halves:
            await self._end(self._chance.choice(list(self._halves)), commit=False)

    async def _end(self, uid: bytes, *, commit: bool) -> None:
        self.ledger.halves[uid] = Thing.DOUBTFUL
        token = self._halves.pop(uid)
        await self.world.client.halves.end(self._topics["deals"], token, commit=commit)
        self.ledger.halves[uid] = Thing.GONE

    # --- Consuming --------------------------------------------------------------------------

    def _some(self, *names: str, count: int = 6) -> tuple[str, list[Delivery]]:
        """Deliveries that the consumer of one topic holds, in one queue; none if there are none."""
        names = names or CONSUMED
        held = {
            name: [row for row in self._takers[name].held.values() if not is_stuck(row)]
            for name in names
        }
        able = [name for name in names if held[name]]
        if not able:
            return names[0], []
        name = self._chance.choice(able)
        queue = held[name][0].queue
        rows = [row for row in held[name] if row.queue == queue]
        self._chance.shuffle(rows)
        return name, rows[:count]

    def _note_dead_letters(self, name: str, rows: list[Delivery]) -> None:
        """What was delivered as a dead letter has left where it came from."""
        if name == "dead":
            for row in rows:
                for copy, dead_letter in self.ledger.dead_letter_of.items():
                    if dead_letter == ("dead", row.uid):
                        self.ledger.is_dead_letter(*copy)

    async def _settle(
        self,
        name: str,
        how: Settlement,
        rows: list[Delivery],
        certain: Callable[[Delivery], None],
    ) -> None:
        """Settle with an answer, then take as many messages more."""

        def heard(failures: Failures) -> None:
            assert not failures
            for row in rows:
                certain(row)

        if rows:
            recorder = self._takers[name]
            await recorder.settling(how, *rows, heard=heard)
            if self._takers[name] is recorder and recorder.error is None:
                recorder.grant(len(rows))

    async def _ack(self) -> None:
        name, rows = self._some(count=self._chance.choice((1, 4, 12)))
        self._note_dead_letters(name, rows)
        for row in rows:
            self.ledger.leaving(name, row.uid)
        await self._settle(name, Settlement.ACK, rows, lambda row: self.ledger.left(name, row.uid))

    async def _ack_quietly(self) -> None:
        name, rows = self._some()
        self._note_dead_letters(name, rows)
        for row in rows:
            self.ledger.leaving(name, row.uid)
        if rows:
            self._takers[name].settle_now(Settlement.ACK, *rows)
            self._takers[name].grant(len(rows))
        await asyncio.sleep(0.01)

    async def _release(self) -> None:
        """Only where the last attempt has not come."""
        name, rows = self._some("bills", "stock", "mail", "ranks", count=3)

        def certain(row: Delivery) -> None:
            self.ledger.attempts[name, row.uid] = row.attempt

        await self._settle(name, Settlement.RELEASE, rows, certain)

    async def _dead_letter(self) -> None:
        name, rows = self._some("orders", count=3)
        for row in rows:
            self.ledger.may_become_dead_letter(name, row.uid, "dead")
        certain = partial(self._is_dead_letter, name)
        await self._settle(name, Settlement.DEAD_LETTER, rows, certain)

    def _is_dead_letter(self, name: str, row: Delivery) -> None:
        self.ledger.is_dead_letter(name, row.uid)

    async def _reconnect(self) -> None:
        self._reader.close()
        self._reader = self.world.peer("reader")
        self._attach()
        await asyncio.sleep(0.01)

    async def _sleep(self, *, whole: bool) -> None:
        """Long enough for a checkpoint, and for what it makes possible; or only until it begins, so
        that the state changes while it is being written down.
        """
        snapshots = self.world.opened.housekeeper.snapshots
        before = snapshots.slices
        for _ in range(120):
            if not whole and snapshots.slices != before:
                return
            await asyncio.sleep(0.1)
