"""What else is done to a topic while it gets other queues (ADR 31), as an operator or a client does
it; and what must be true of that:

    in_one_queue      a message that was stored is in the topic once
    all_or_nothing    of a transaction is all there, or nothing
    purged_is_gone    of what was there before a purge nothing is to be had, and all that came after
    deleted_is_gone   nothing is left of a topic, and the next one of its name has what it was sent
    moved_once        what is moved to the topic, or redriven to it, is there, or where it was, once
    half_is_decided   what was committed is there, once; what was rolled back is not
    stuck_lease_blocks_its_key   and nothing else
    old_token_settles_nothing   of a queue that is gone, at the one that has its number by now
    sized_between     a topic with a size has as many queues as that allows

All of it is done beside resizes within a Raft group, and again, by other topics, beside those that
spread the topic over all of them.

Each has a topic of its own, that nobody else uses; it is looked at once all is quiet. A message is
known by its body, for one that is moved is a new one. Nothing of it counts as an event of the run:
as much else happens as without.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from msgspec import structs

from kernel.api import message as messages
from kernel.api.atomic import Transaction
from kernel.api.changes import (
    Administration,
    DeleteTopic,
    PurgeTopic,
    PutRecord,
    PutTopic,
    ResizeTopic,
    StartMove,
)
from kernel.api.client import LeaseChange, LeaseVerb, ReceiveSpec
from kernel.api.message import Ext, Message
from kernel.api.model import DEFAULT_GROUP, DeadLetter, GroupOptions, TopicInfo, TopicOptions
from kernel.api.moves import PREFIX as MOVES
from kernel.api.moves import MoveState, tasks
from kernel.broker.group_state.resized import ResizedTopic
from kernel.broker.group_state.state import GroupState
from kernel.common.errors import Code, KernelError
from kernel.common.ids import METADATA_GROUP, QueueId, RaftGroup, TopicId
from kernel.common.placement import home_group
from kernel.definitions.automatic_size import What
from kernel.definitions.definer import Asked
from kernel.definitions.sizes import Size
from kernel.definitions.topic_sizes import TopicSize, encode, key_of
from kernel.log.format import entry as entries
from kernel.requests.pull import decode_token
from tests.simulator.peer import Draft, Peer

if TYPE_CHECKING:
    from .machines import Machine
    from .run import Run

SHARE = 0.9
"""Of the runs of more than one node."""

AT_ONCE = (4, 5, 6)
"""Topics of a run."""

BEGINS = 0.03
"""Share of looks at which the next of them begins, so that most do in 2,000 events."""

MESSAGES = 6
KEYS = 4
QUEUES_MAX = 4
SPREADS = 0.8
"""Share of the leases over resizes by which the topic gets queues in all Raft groups."""

SPREAD_AT_ONCE = (5, 6)
"""Topics of a run that are spread while something else than a lease happens to them."""

SPREAD_BEFORE = 0.4
"""Share of these that had been spread before."""

NUMBERS_QUEUES = (4, 2, 4, 3, 4, 2, 4, 3)
"""A topic is resized so often that numbers come again."""

GONE_S = 0.8
"""Then a sealed queue that is empty has gone, if nothing goes wrong."""

WINDOW_MS = 300

WAIT_S = 6.0
"""Then the process that was asked has ended, or does not lead any more."""

TRIES_MAX = 12
HOURS_12_MS = 12 * 3_600_000
LOAD_S = 14.0
CALM_S = 60.0
"""Then nothing until it shrinks, at most so long: a new leader begins to look anew, and whether it
is calm is looked at every ten seconds."""

QUEUE = Size(4, 1e9)
"""What one queue is meant for: so little that a few messages a second are much."""

CALM_MS = 4_000
SIZE_MAX = 12.0
"""Of messages a second: three queues."""

BETWEEN_TWO = frozenset({"move", "redrive"})
"""What happens between the topic and another one."""

RULES = {"move": "moved_once", "redrive": "moved_once", "half": "half_is_decided"}
GONE_RULES = {
    "delete": "deleted_is_gone",
    "purge": "purged_is_gone",
    "half": "half_is_decided",
    "numbers": "acked_stays_acked",
}

REFUSED = frozenset({Code.BUSY, Code.NO_SPACE, Code.NOT_FOUND, Code.NOT_ALLOWED})
"""What is answered so was not done."""


@dataclass(slots=True)
class Story:
    """One topic, what was done to it, and what has to be there in the end."""

    kind: str
    name: str
    stored: set[bytes] = field(default_factory=set)
    """Messages that were answered."""
    unknown: set[bytes] = field(default_factory=set)
    """Those of which nobody knows."""
    gone: set[bytes] = field(default_factory=set)
    """They may not be had any more."""
    together: list[tuple[bool | None, set[bytes]]] = field(default_factory=list)
    """Transactions: whether each was done (None: nobody knows), and its messages."""
    deleted: list[TopicId] = field(default_factory=list)
    stuck: tuple[bytes, bytes] | None = None
    """Key and body of a message that somebody keeps."""
    spreads: bool = False
    """Whether its resizes give it queues in all Raft groups."""
    during: list[str] = field(default_factory=list)
    """What has happened while it was being resized: counts if it was."""
    is_over: bool = False


class BesideResizes:
    """Of one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        chance = self._chance = random.Random(run.seed + 12)
        self._acts: dict[str, Callable[[Story], Awaitable[None]]] = {
            "transaction": self._transact,
            "purge": self._purge,
            "delete": self._delete,
            "move": self._move,
            "lease": self._keep,
            "size": self._size,
            "half": self._half,
            "redrive": self._redrive,
        }
        anew = random.Random(run.seed + 14)
        happens = run.levels.nodes > 1 and chance.random() < SHARE
        kinds = chance.sample(list(self._acts), chance.choice(AT_ONCE)) if happens else []
        self.stories = [Story(each, f"aside-{number}") for number, each in enumerate(kinds)]
        if happens:
            apart = random.Random(run.seed + 13)  # so that the other topics' are as they were
            some = [each for each in self._acts if each != "size"]
            for number, each in enumerate(apart.sample(some, apart.choice(SPREAD_AT_ONCE))):
                at = apart.randint(0, len(self.stories))
                self.stories.insert(at, Story(each, f"spread-{number}", spreads=True))
        self._numbers: Story | None = None
        if happens:
            self._numbers = Story("numbers", "numbers", spreads=anew.random() < 0.5)
            self.stories.append(self._numbers)
            self._acts["numbers"] = self._use_numbers_again
        self.half_topics = {each.name for each in self.stories if each.kind == "half"}
        self._waiting = [each for each in self.stories if each is not self._numbers]
        self._count = 0
        self._tasks: list[asyncio.Task[None]] = []

    def look(self) -> None:
        """Begin with one, perhaps."""
        run = self._run
        if self._numbers is not None and not self._tasks:
            self._tasks.append(run.loop.create_task(self._tell(self._numbers)))
        if self._waiting and not run.peaceful and self._chance.random() < BEGINS:
            story = self._waiting.pop(0)
            run.note(f"{story.kind} beside a resize of {story.name}")
            self._tasks.append(run.loop.create_task(self._tell(story)))

    def sized(self, what: What | None) -> None:
        """A store has decided on a size."""
        self._run.count(f"size: {what.value if what else 'failed'}")

    async def _tell(self, story: Story) -> None:
        try:
            options = GroupOptions(ordered=story.kind in {"lease", "size"})
            if story.kind == "redrive":
                letters = DeadLetter(None, self._source_of(story))
                options = GroupOptions(attempts_max=1, dead_letter=letters)
            topic = TopicOptions()
            if story.kind == "numbers" and story.spreads:  # a window is told to other groups
                topic = TopicOptions(queues=2, deduplication_ms=WINDOW_MS)
            made = await self._ask(PutTopic("default", story.name, topic, _of(options)))
            if made is not None:
                await self._spread_before(story)
                await self._acts[story.kind](story)
        except Exception as error:  # noqa: BLE001 - told as a crash
            self._run.crashed(f"{story.kind} beside a resize: {error!r}")
        finally:
            story.is_over = True

    async def _spread_before(self, *stories: Story) -> None:
        """Some topics have queues in all groups before anything else is done to them."""
        for each in stories:
            if each.spreads and self._chance.random() < SPREAD_BEFORE:
                await self._resize(each)

    # --- What is done -----------------------------------------------------------------------

    async def _transact(self, story: Story) -> None:
        resizing = self._resize(story)
        for _ in range(4):
            await self._transaction(story, resizing)
            await asyncio.sleep(self._chance.uniform(0, 0.02))
        await resizing

    async def _transaction(self, story: Story, resizing: asyncio.Task[bool]) -> None:
        found = self._at_leader(story.name)
        topic = found.opened.client.topic("default", story.name) if found is not None else None
        if found is None or topic is None:
            return
        client = found.opened.client
        peer = Peer(client, self._run.clock, story.name)
        batch = client.batch(peer.session, peer)
        bodies = [self._body() for _ in range(3)]
        # What has queues in several groups is whole if it is of one key; else it goes in steps.
        whole = not story.spreads or self._chance.random() < 0.35
        only = self._chance.randrange(KEYS)
        for number, body in enumerate(bodies):
            key = only if story.spreads and whole else number
            parts = Draft(body, key=b"k%d" % key).parts(batch.uid(), 0)
            batch.add(client.to_topic(topic), parts, sum(map(len, parts)))
        is_done: bool | None = None
        try:
            async with asyncio.timeout(WAIT_S):
                await client.transact(Transaction(batch, whole=whole))
            is_done = True
            self._during("transaction", resizing, story)
        except KernelError as error:
            self._run.count(f"transaction refused: {error.code.name}")
            if error.code in REFUSED:
                is_done = False
                self._during("transaction refused", resizing, story)
        except TimeoutError:
            pass
        if whole:
            story.together.append((is_done, set(bodies)))
        else:
            self._during("transaction in steps", resizing, story)
            (story.stored if is_done else story.unknown).update(bodies)

    async def _purge(self, story: Story) -> None:
        await self._publish(story)
        before = set(story.stored)
        resizing = self._resize(story)
        await asyncio.sleep(self._chance.uniform(0, 0.02))
        self._during("purge", resizing, story)
        # Once: a try of which nothing is heard may purge what comes later.
        purged = await self._ask(PurgeTopic("default", story.name, DEFAULT_GROUP), tries=1)
        if purged is None:
            story.unknown |= before
        story.stored -= before
        story.gone |= before if purged is not None else set()
        if purged is not None:
            await self._publish(story)
        await resizing

    async def _delete(self, story: Story) -> None:
        await self._publish(story)
        resizing = self._resize(story)
        await asyncio.sleep(self._chance.uniform(0, 0.02))
        topic = self._topic(story.name)
        self._during("delete", resizing, story)
        deleted = await self._ask(DeleteTopic("default", story.name), done=Code.NOT_FOUND)
        await resizing
        if topic is None or deleted is None:
            story.unknown |= story.stored
            story.stored = set()
            return
        story.deleted.append(topic.id)
        story.gone |= story.stored | story.unknown
        story.stored, story.unknown = set(), set()
        again = PutTopic("default", story.name, TopicOptions(), _of(GroupOptions()))
        if await self._ask(again) is not None:
            await self._publish(story)

    async def _move(self, story: Story) -> None:
        source = Story("source", self._source_of(story), spreads=story.spreads)
        made = await self._ask(
            PutTopic("default", source.name, TopicOptions(), _of(GroupOptions()))
        )
        if made is None:
            return
        await self._spread_before(source)
        await self._publish(source)
        # What was not answered may be there all the same, and be moved.
        story.stored, story.unknown = source.stored, source.unknown
        resizing = self._resize(story)
        resizing_source = self._resize(source)
        await asyncio.sleep(self._chance.uniform(0, 0.02))
        self._during("move", resizing, story)
        await self._ask(StartMove("default", source.name, DEFAULT_GROUP, story.name))
        await resizing
        await resizing_source

    async def _keep(self, story: Story) -> None:
        """Somebody takes a message for twelve hours, and is never heard of again."""
        story.spreads |= self._chance.random() < SPREADS
        await self._publish(story)
        machine, topic = self._at_leader(story.name), self._topic(story.name)
        if machine is None or topic is None:
            return
        spec = ReceiveSpec(topic, DEFAULT_GROUP, wait_ms=1_000, lease_ms=HOURS_12_MS)
        try:
            async with asyncio.timeout(WAIT_S):
                received = await machine.opened.client.receive(spec)
        except (KernelError, TimeoutError):
            story.stored.clear()  # somebody may have taken any
            return
        if received.deliveries is None:
            return
        (slot,) = received.deliveries.slots
        message = messages.decode(slot)
        story.stuck = _key(message), message.body
        resizing = self._resize(story)
        await self._publish(story)
        if await resizing:
            self._run.count("lease kept over a resize")
            if story.spreads:
                self._run.count("lease kept over a resize that spreads")
        await self._publish(story)

    async def _size(self, story: Story) -> None:
        topic = self._topic(story.name)
        if topic is None:
            return
        size = TopicSize(topic.id, 1, 0, SIZE_MAX, 0, by_key=True)
        change = PutRecord(key_of("default", story.name), encode(size))
        if await self._ask(change, METADATA_GROUP) is None:
            return
        ends = self._run.loop.time() + LOAD_S
        while self._run.loop.time() < ends:
            await self._publish(story, 3)
            await asyncio.sleep(0.2)
        ends = self._run.loop.time() + CALM_S
        most = now = len(topic.writable)
        while now >= most and self._run.loop.time() < ends:
            await asyncio.sleep(1.0)
            changed = self._topic(story.name)
            now = len(changed.writable) if changed is not None else now
            most = max(most, now)

    async def _half(self, story: Story) -> None:
        """Half messages wait while the topic gets other queues, and are decided on at any time."""
        tokens = [await self._prepare(story) for _ in range(MESSAGES)]
        resizing = self._resize(story)
        for token, body in filter(None, tokens):
            await asyncio.sleep(self._chance.uniform(0, 0.02))
            self._during("half message ended", resizing, story)
            await self._end_half(story, token, body, commit=self._chance.random() < 0.6)
        late = await self._prepare(story)
        await resizing
        if late is not None:
            await self._end_half(story, *late, commit=True)

    async def _prepare(self, story: Story) -> tuple[bytes, bytes] | None:
        """(token, body) of a half message; None: there is none, or nobody knows of it."""
        machine, topic = self._at_leader(story.name), self._topic(story.name)
        if machine is None or topic is None:
            return None
        client, body = machine.opened.client, self._body()
        draft = Draft(body, key=b"k%d" % self._chance.randrange(KEYS))
        peer = Peer(client, self._run.clock, story.name)
        parts = draft.parts(client.batch(peer.session, peer).uid(), 0)
        try:
            async with asyncio.timeout(WAIT_S):
                return await client.halves.prepare(topic, "producers", parts), body
        except KernelError as error:
            self._run.count(f"half message refused: {error.code.name}")
        except TimeoutError:
            pass
        story.gone.add(body)  # nobody commits it
        return None

    async def _end_half(self, story: Story, token: bytes, body: bytes, *, commit: bool) -> None:
        """Decide on it, once: a try of which nothing is heard may have been carried out."""
        machine, topic = self._at_leader(story.name), self._topic(story.name)
        if machine is None or topic is None:
            story.unknown.add(body)
            return
        try:
            async with asyncio.timeout(WAIT_S):
                await machine.opened.client.halves.end(topic, token, commit=commit)
        except (KernelError, TimeoutError):
            story.unknown.add(body)
            return
        (story.stored if commit else story.gone).add(body)

    async def _redrive(self, story: Story) -> None:
        """Dead letters go back to the topic that they are of, while it gets other queues."""
        letters = self._source_of(story)
        made = await self._ask(PutTopic("default", letters, TopicOptions(), _of(GroupOptions())))
        if made is None:
            return
        source = Story("letters", letters, spreads=story.spreads)
        await self._spread_before(source)
        await self._publish(story)
        await self._reject(story)
        resizing = [self._resize(story)]
        if story.spreads:
            resizing.append(self._resize(source))
        await asyncio.sleep(self._chance.uniform(0, 0.02))
        self._during("redrive", resizing[0], story)
        await self._ask(StartMove("default", letters, DEFAULT_GROUP))
        await asyncio.gather(*resizing)

    async def _reject(self, story: Story) -> None:
        """Have some of its messages be dead letters."""
        topic = self._topic(story.name)
        for group in {ref.group: None for ref in topic.queues} if topic is not None else ():
            machine = self._leader(group)
            if machine is None:
                continue
            client, here = machine.opened.client, _part_of(topic, group)
            spec = ReceiveSpec(here, DEFAULT_GROUP, MESSAGES, 1_000, lease_ms=60_000)
            try:
                async with asyncio.timeout(WAIT_S):
                    tokens = (await client.receive(spec)).tokens
                    changes = [LeaseChange(each, LeaseVerb.DEAD_LETTER) for each in tokens]
                    await client.settle_leases(here, DEFAULT_GROUP, changes)
            except (KernelError, TimeoutError):
                continue
            self._run.count("dead letters beside a resize")

    async def _use_numbers_again(self, story: Story) -> None:
        """Sealed queues are emptied, and go; who leads is hit then too (`resizer`)."""
        tokens: dict[QueueId, list[bytes]] = {}
        gone: set[QueueId] = set()
        for queues in NUMBERS_QUEUES:
            await self._publish(story)
            change = ResizeTopic("default", story.name, queues, by_key=True, spread=story.spreads)
            await self._ask(change)
            await self._empty(story, tokens)
            await asyncio.sleep(GONE_S)
            topic = self._topic(story.name)
            if topic is None:
                continue
            there = {ref.id for ref in topic.queues}
            for queue in sorted(gone & there & tokens.keys()):
                await self._try_old(topic, queue, tokens.pop(queue))
            gone |= tokens.keys() - there

    async def _empty(self, story: Story, tokens: dict[QueueId, list[bytes]]) -> None:
        """Receive and settle what is to be had, and note by which tokens."""
        topic = self._topic(story.name)
        for group in {ref.group: None for ref in topic.queues} if topic is not None else ():
            machine = self._leader(group)
            if machine is None:
                continue
            client, here = machine.opened.client, _part_of(topic, group)
            spec = ReceiveSpec(here, DEFAULT_GROUP, MESSAGES, 300, lease_ms=60_000)
            try:
                async with asyncio.timeout(WAIT_S):
                    while (received := await client.receive(spec)).deliveries is not None:
                        bodies = [messages.decode(each).body for each in received.deliveries.slots]
                        story.stored -= set(bodies)
                        story.unknown |= set(bodies)
                        acks = [LeaseChange(each, LeaseVerb.ACK) for each in received.tokens]
                        errors = await client.settle_leases(here, DEFAULT_GROUP, acks)
                        for body, error, token in zip(bodies, errors, received.tokens, strict=True):
                            if error is None:
                                story.gone.add(body)
                                story.unknown.discard(body)
                            tokens.setdefault(_queue_of(token), []).append(token)
            except (KernelError, TimeoutError):
                continue

    async def _try_old(self, topic: TopicInfo, queue: QueueId, tokens: list[bytes]) -> None:
        (group,) = {ref.group for ref in topic.queues if ref.id == queue}
        machine = self._leader(group)
        if machine is None:
            return
        acks = [LeaseChange(each, LeaseVerb.ACK) for each in tokens]
        here = _part_of(topic, group)
        try:
            async with asyncio.timeout(WAIT_S):
                client = machine.opened.client
                errors = await client.settle_leases(here, DEFAULT_GROUP, acks)
        except (KernelError, TimeoutError):
            return
        self._run.count("token of a number that was used again", len(errors))
        if not all(errors):
            self._broken("old_token_settles_nothing", f"queue {queue:x}")

    def _source_of(self, story: Story) -> str:
        """The other topic of a story, of the same home."""
        names = (f"{story.name}-source-{number}" for number in count())
        return next(each for each in names if self._home(each) == self._home(story.name))

    # --- How it is done ---------------------------------------------------------------------

    def _during(self, what: str, resizing: asyncio.Task[bool], story: Story) -> None:
        if not resizing.done():
            story.during.append(what)

    def _resize(self, story: Story) -> asyncio.Task[bool]:
        async def resize() -> bool:
            queues = self._chance.randint(2, QUEUES_MAX)
            change = ResizeTopic("default", story.name, queues, by_key=True, spread=story.spreads)
            if await self._ask(change, done=Code.NOT_FOUND) is None:
                return False
            for what in story.during:
                self._run.count(f"{what} during a {'spread' if story.spreads else 'resize'}")
            return True

        return self._run.loop.create_task(resize())

    def _at_leader(self, name: str) -> Machine | None:
        return self._leader(self._home(name))

    def _home(self, name: str) -> RaftGroup:
        return home_group(self._run.founding()[1:], "default", name)

    def _data_groups(self) -> list[RaftGroup]:
        return [each for each in self._run.groups() if each != METADATA_GROUP]

    def _leader(self, group: RaftGroup) -> Machine | None:
        return self._run.leader(group)

    def _topic(self, name: str) -> TopicInfo | None:
        machine = self._at_leader(name)
        return machine.opened.client.topic("default", name) if machine is not None else None

    async def _ask(
        self,
        change: Administration,
        group: RaftGroup | None = None,
        done: Code | None = None,
        tries: int = TRIES_MAX,
    ) -> object | None:
        """Have a change made by whoever leads, again and again; its result, or None: whether it was
        made nobody knows. `done`: what is heard once it was made.
        """
        assert isinstance(change, PutRecord) or group is None
        at = group
        if not isinstance(change, PutRecord):
            at = self._home(change.name)  # type: ignore[union-attr]
        assert at is not None
        for _ in range(tries):
            machine = self._leader(at)
            if machine is not None:
                try:
                    async with asyncio.timeout(WAIT_S):
                        result = await machine.opened.client._administer(change, Asked())
                    return True if result is None else result
                except KernelError as error:
                    self._run.count(f"beside a resize: {error.code.name}")
                    if error.code is done:
                        return True
                    if error.code is Code.NOT_ALLOWED:
                        return None
                except TimeoutError:
                    pass
            await asyncio.sleep(self._chance.uniform(0.05, 1))
        return None

    async def _publish(self, story: Story, number: int = MESSAGES) -> None:
        """Some messages of some keys, at whoever leads; not again."""
        machine = self._at_leader(story.name)
        topic = machine.opened.client.topic("default", story.name) if machine is not None else None
        if machine is None or topic is None:
            return
        peer = Peer(machine.opened.client, self._run.clock, story.name)
        bodies = [self._body() for _ in range(number)]
        drafts = [Draft(each, key=b"k%d" % self._chance.randrange(KEYS)) for each in bodies]
        sent = peer.submit(topic, *drafts)
        try:
            async with asyncio.timeout(WAIT_S):
                await asyncio.shield(sent.done)
        except TimeoutError:
            story.unknown |= set(bodies)
            return
        for place, body in enumerate(bodies):
            error = sent.failures.get(place)
            if error is None:
                story.stored.add(body)
            elif error.code not in REFUSED:
                story.unknown.add(body)

    def _body(self) -> bytes:
        self._count += 1
        return b"aside %d" % self._count

    # --- The end ----------------------------------------------------------------------------

    def why_not(self) -> str:
        """What is not over yet; nothing if all is."""
        begun = [each for each in self.stories if each not in self._waiting]
        if not all(each.is_over for each in begun):
            return "something beside a resize is not over"
        for story in begun:
            if why := self._is_moving(story):
                return why
            for name in (story.name, self._source_of(story)):
                machine = self._at_leader(name)
                if machine is None:
                    return f"{name} has no leader"
                state = machine.member(self._home(name)).state
                if why := _is_changing(state, name):
                    return why
        return ""

    def _is_moving(self, story: Story) -> str:
        machine, source = self._leader(METADATA_GROUP), self._source_of(story)
        if story.kind not in BETWEEN_TWO or machine is None:
            return ""
        known = tasks(machine.opened.client.records(MOVES), "default", source)
        is_moving = any(each.state is MoveState.RUNNING for each in known)
        return f"messages of {source} are being moved" if is_moving else ""

    async def check(self) -> None:
        """All of them, once nothing happens any more."""
        for story in self.stories:
            if story not in self._waiting:
                await self._check(story)

    async def _check(self, story: Story) -> None:
        found = await self._found(story.name)
        if story.kind in BETWEEN_TWO:
            found += await self._found(self._source_of(story))
        rule = RULES.get(story.kind, "in_one_queue")
        for body in story.stored:
            if found[body] != 1:
                self._broken(rule, f"{body.decode()} is {found[body]} times in {story.name}")
        for body, times in found.items():
            if times > 1:
                self._broken(rule, f"{body.decode()} is {times} times in {story.name}")
            if body in story.gone:
                self._broken(GONE_RULES[story.kind], f"{body.decode()} is in {story.name}")
        for is_done, bodies in story.together:
            there = sum(found[body] for body in bodies)
            wanted = {True: (len(bodies),), False: (0,), None: (0, len(bodies))}[is_done]
            if there not in wanted:
                what = f"{story.name}: {there} of {len(bodies)} of a transaction, done: {is_done}"
                self._broken("all_or_nothing", what)
        for topic in story.deleted:
            self._check_deleted(story, topic)
        if story.stuck is not None:
            await self._check_stuck(story, *story.stuck)
        if story.kind == "size":
            topic_now = self._topic(story.name)
            if topic_now is not None and not 1 <= len(topic_now.writable) <= 3:
                what = f"{story.name} has {len(topic_now.writable)} queues"
                self._broken("sized_between", what)

    def _check_deleted(self, story: Story, topic: TopicId) -> None:
        for group in self._run.groups():
            machine = self._run.leader(group)
            assert machine is not None
            state = machine.member(group).state
            if topic in state.topics or topic in state.resized:
                what = f"{story.name}, {topic:x}, is in group {group}"
                self._broken("deleted_is_gone", what)

    async def _check_stuck(self, story: Story, key: bytes, stuck: bytes) -> None:
        """Everything of other keys is to be had, though one message never is settled."""
        machine, topic = self._at_leader(story.name), self._topic(story.name)
        assert machine is not None
        assert topic is not None
        got: dict[bytes, RaftGroup] = {}
        keys = dict(await self._messages(story.name))
        try:
            while await self._take(story, topic, key, got):
                pass
        except KernelError as error:
            if error.code is not Code.NOT_LEADER:
                raise
            return  # leaders are balanced: what was on its way is leased to nobody
        if story.spreads and len(set(got.values())) > 1:
            self._run.count("stuck lease looked at across groups")
        self._run.count("stuck lease looked at")
        for body in story.stored - got.keys():
            if keys.get(body) not in {None, key}:
                what = f"{body.decode()} of {keys[body]!r} in {story.name} waits for {key!r}"
                self._broken("stuck_lease_blocks_its_key", what)

    async def _take(
        self, story: Story, topic: TopicInfo, key: bytes, got: dict[bytes, RaftGroup]
    ) -> bool:
        """Receive and settle what is to be had in each Raft group; whether there was anything."""
        before = len(got)
        for group in {ref.group: None for ref in topic.queues}:
            machine = self._leader(group)
            assert machine is not None
            client = machine.opened.client
            here = _part_of(topic, group)
            spec = ReceiveSpec(here, DEFAULT_GROUP, 10, 2_000, lease_ms=HOURS_12_MS)
            while (received := await client.receive(spec)).deliveries is not None:
                for slot in received.deliveries.slots:
                    message = messages.decode(slot)
                    got[message.body] = group
                    if _key(message) == key:
                        what = f"{message.body.decode()} of {story.name} comes before another"
                        self._broken("stuck_lease_blocks_its_key", what)
                acks = [LeaseChange(each, LeaseVerb.ACK) for each in received.tokens]
                await client.settle_leases(here, DEFAULT_GROUP, acks)
        return len(got) > before

    def _sound(self, group: RaftGroup) -> Machine:
        """One of a group, all of which are level, whose disk reads: else it would end by that."""
        run = self._run
        voters = (run.machines[each] for each in sorted(run.voters(group)))
        return next(each for each in voters if each.number != run.flipped)

    async def _found(self, name: str) -> Counter[bytes]:
        return Counter([body for body, _ in await self._messages(name)])

    async def _messages(self, name: str) -> list[tuple[bytes, bytes]]:
        """Bodies and keys of what is to be had in a topic, ready or held, by its leaders."""
        home = self._at_leader(name)
        assert home is not None
        ident = home.member(self._home(name)).state.topic_names.get(("default", name))
        found: list[tuple[bytes, bytes]] = []
        for group in self._data_groups() if ident is not None else ():
            machine = self._sound(group)
            state, store = machine.member(group).state, machine.opened.store
            for queue, offset in list(_unsettled(state, ident)):  # type: ignore[arg-type]
                run = state.queues[queue].index.find(offset)  # type: ignore[arg-type]
                entry = store.entry(group, run.index)
                while entry is None:
                    await store.fetched(group, run.index)
                    entry = store.entry(group, run.index)
                message = messages.decode(entries.slot(entry, run.slot))
                found.append((message.body, _key(message)))
        return found

    def _broken(self, invariant: str, what: str) -> None:
        self._run.broken(invariant, what)


def _of(options: GroupOptions) -> dict[str, GroupOptions]:
    return {DEFAULT_GROUP: options}


def _part_of(topic: TopicInfo, group: RaftGroup) -> TopicInfo:
    """The topic as far as one Raft group has it: a store pulls from what it leads."""
    return structs.replace(topic, queues=tuple(e for e in topic.queues if e.group == group))


def _queue_of(token: bytes) -> QueueId:
    known = decode_token(token)
    assert known is not None
    return QueueId(known[0])


def _key(message: Message) -> bytes:
    return message.ext.get(Ext.ORDERING_KEY, b"")


def _queues(state: GroupState, ident: TopicId) -> list[QueueId]:
    if ident not in state.topics:
        return []
    refs = (ref.id for ref in state.topics[ident].refs if ref.group == state.group)
    resized = state.resized.get(ident, ResizedTopic())
    return list(resized.queues_here(ident, refs))


def _is_changing(state: GroupState, name: str) -> str:
    ident = state.topic_names.get(("default", name))
    resized = state.resized.get(ident) if ident is not None else None
    return f"{name} is being resized" if resized is not None and resized.plan is not None else ""


def _unsettled(state: GroupState, ident: TopicId) -> Iterator[tuple[QueueId, int]]:
    for queue in _queues(state, ident):
        found = state.queues[queue]
        progress = found.groups[DEFAULT_GROUP]
        for offset in range(progress.floor, found.index.tail):
            if not progress.is_acked(offset):
                yield queue, offset
