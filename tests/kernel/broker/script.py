"""The commands of the transcripts: a store on a simulated disk, in virtual time.

    topic NAME [kind=stream] [groups=A,B] [durable=no] [ordered=yes] [priorities=N] [ttl=T]
               [retention=T] [deduplication=T] [limit=N overflow=reject|drop] [attempts=N]
               [dead_letter=TOPIC]
    publish TOPIC BODY... [key=K] [priority=N] [delay=T] [ttl=T] [id=ID]
    receive TOPIC [count=N] [lease=T] [wait=T]     leases until a deadline, named L1, L2, ...
    consume TOPIC as=NAME credit=N                 leases that end with the session of NAME
    ack|release|return|dead_letter LEASE... [after=T]     `NAME/OFFSET` is a lease of a consumer's
    extend LEASE... by=T
    close NAME                                     its session ends
    prepare TOPIC BODY...                          half messages, named H1, H2, ...
    commit|rollback HALF...
    show TOPIC, purge TOPIC, wait T
    restart                                        the process ends in order and starts again
    crash                                          the power fails; what was not synced is gone

Without `group=G` the consumer group is `default`. Behind each command the store comes to rest; what
consumers were handed meanwhile is told.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import msgspec

from kernel.api import message as messages
from kernel.api.client import (
    LeaseChange,
    LeaseVerb,
    PurgeTopic,
    ReceiveSpec,
    Settlement,
)
from kernel.api.message import Ext, Flag
from kernel.api.model import (
    DEFAULT_GROUP,
    DEFAULT_TENANT,
    DeadLetter,
    GroupOptions,
    Overflow,
    TopicInfo,
    TopicKind,
    TopicOptions,
)
from kernel.api.transactions import HalfCheck
from kernel.common.errors import KernelError
from tests.simulator.peer import Draft, Peer, Recorder
from tests.simulator.world import World
from tests.transcripts import milliseconds, parsed

REST_S = 0.02
"""Virtual time behind each command: settlements that nobody waits for are written after 5 ms."""

OVERFLOWS = {"reject": Overflow.REJECT, "drop": Overflow.DROP_OLDEST}

PRODUCERS = "producers"
"""The producer group of all half messages."""

Named = dict[str, str]


@dataclass
class Connected:
    """A consumer by name, and how many of its deliveries have been told."""

    peer: Peer
    recorder: Recorder
    told: int = 0


class Script:
    """What the commands of one transcript act upon."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.topics: dict[str, TopicInfo] = {}
        self.leases: dict[str, tuple[TopicInfo, str, bytes]] = {}
        self.halves: dict[str, tuple[TopicInfo, bytes]] = {}
        self.consumers: dict[str, Connected] = {}
        self.peer: Peer | None = None
        self._told: list[str] = []

    async def run(self, command: str) -> list[str]:
        """Carry out a command; what came of it."""
        words, named = parsed(command)
        self._told = []
        try:
            await getattr(self, f"_{words[0]}")(words[1:], named)
        except KernelError as error:
            self._tell(f"refused: {error.code.wire}")
        await asyncio.sleep(REST_S)
        await self.world.settle_down()
        self._tell_deliveries()
        return [f"  {line}" for line in self._told]

    def _tell(self, line: str) -> None:
        self._told.append(line)

    def _connected(self) -> Peer:
        if self.peer is None:
            self.peer = self.world.peer()
            self.world.client.halves.watch(DEFAULT_TENANT, PRODUCERS, self)
        return self.peer

    # --- Topics -----------------------------------------------------------------------------

    async def _topic(self, words: list[str], named: Named) -> None:
        def duration(name: str) -> int | None:
            return milliseconds(named[name]) if name in named else None

        options = TopicOptions(
            kind=TopicKind(named.get("kind", "work")),
            durable=named.get("durable") != "no",
            message_ttl_ms=duration("ttl"),
            retention_ms=duration("retention"),
            deduplication_ms=duration("deduplication"),
            messages_max=int(named["limit"]) if "limit" in named else None,
            overflow=OVERFLOWS[named.get("overflow", "drop")],
            priority_max=int(named.get("priorities", "0")),
        )
        group = GroupOptions(
            ordered=named.get("ordered") == "yes",
            attempts_max=int(named["attempts"]) if "attempts" in named else None,
            dead_letter=DeadLetter(None, named["dead_letter"]) if "dead_letter" in named else None,
        )
        groups = dict.fromkeys(named.get("groups", DEFAULT_GROUP).split(","), group)
        self.topics[words[0]] = await self._connected().topic(words[0], options, groups=groups)

    async def _show(self, words: list[str], named: Named) -> None:
        found = self.world.figures(self.topics[words[0]], named.get("group", DEFAULT_GROUP))
        expired = f", expired {found.expired}" if found.expired else ""
        self._tell(f"ready {found.ready}, leased {found.leased}, delayed {found.delayed}{expired}")

    async def _purge(self, words: list[str], named: Named) -> None:
        change = PurgeTopic(DEFAULT_TENANT, words[0], named.get("group", DEFAULT_GROUP))
        self._tell(f"dropped {await self.world.client.administer(change)}")

    # --- Messages ---------------------------------------------------------------------------

    async def _publish(self, words: list[str], named: Named) -> None:
        topic = self.topics[words[0]]
        drafts = [
            Draft(
                body.encode(),
                key=named.get("key", "").encode(),
                priority=int(named.get("priority", "0")),
                delay_ms=milliseconds(named.get("delay", "0s")),
                ttl_ms=milliseconds(named.get("ttl", "0s")),
                deduplication_id=named.get("id", "").encode(),
            )
            for body in words[1:]
        ]
        sent = await self._connected().publish(topic, *drafts)
        assert sent.batch is not None
        for at, body in enumerate(words[1:]):
            error = sent.failures.get(at)
            if error is not None:
                self._tell(f'refused "{body}": {error.code.wire}')
                continue
            place = sent.batch.place(at)
            where = "in memory" if place is None else f"at {place[1]}"
            repeated = ", before" if at in (sent.batch.duplicates or {}) else ""
            self._tell(f'stored "{body}" {where}{repeated}')

    async def _receive(self, words: list[str], named: Named) -> None:
        topic, group = self.topics[words[0]], named.get("group", DEFAULT_GROUP)
        received = await self.world.client.receive(
            ReceiveSpec(
                topic,
                group,
                messages=int(named.get("count", "1")),
                wait_ms=milliseconds(named.get("wait", "0s")),
                lease_ms=milliseconds(named.get("lease", "30s")),
            )
        )
        if received.deliveries is None:
            self._tell("nothing")
            return
        found = received.deliveries
        attempts = found.attempts or [1] * len(found.offsets)
        rows = zip(received.tokens, found.offsets, found.slots, attempts, strict=True)
        for token, offset, slot, attempt in rows:
            name = f"L{len(self.leases) + 1}"
            self.leases[name] = (topic, group, token)
            self._tell(f"{name}: {described(offset, slot, attempt)}")

    async def _consume(self, words: list[str], named: Named) -> None:
        peer = self.world.peer(named["as"])
        recorder = peer.attach(self.topics[words[0]], credit=int(named["credit"]))
        self.consumers[named["as"]] = Connected(peer, recorder)

    def _tell_deliveries(self) -> None:
        for name, each in self.consumers.items():
            for delivery in each.recorder.got[each.told :]:
                self._tell(f"{name}/{described(delivery.offset, delivery.slot, delivery.attempt)}")
            each.told = len(each.recorder.got)

    async def _close(self, words: list[str], named: Named) -> None:
        self.consumers.pop(words[0]).peer.close()

    # --- Leases -----------------------------------------------------------------------------

    async def _ack(self, words: list[str], named: Named) -> None:
        await self._settle(words, LeaseVerb.ACK, Settlement.ACK, named)

    async def _release(self, words: list[str], named: Named) -> None:
        await self._settle(words, LeaseVerb.RELEASE, Settlement.RELEASE, named)

    async def _return(self, words: list[str], named: Named) -> None:
        await self._settle(words, LeaseVerb.RETURN, Settlement.RETURN, named)

    async def _dead_letter(self, words: list[str], named: Named) -> None:
        await self._settle(words, LeaseVerb.DEAD_LETTER, Settlement.DEAD_LETTER, named)

    async def _extend(self, words: list[str], named: Named) -> None:
        await self._settle(words, LeaseVerb.EXTEND, None, {"after": named["by"]})

    async def _settle(
        self, words: list[str], verb: LeaseVerb, how: Settlement | None, named: Named
    ) -> None:
        for word in words:
            holder, slash, offset = word.partition("/")
            error: KernelError | None
            if slash:
                assert how is not None, "the leases of a session have no time"
                failures = await self.consumers[holder].recorder.settle(how, int(offset))
                error = failures.get(int(offset))
            else:
                topic, group, token = self.leases[word]
                change = LeaseChange(token, verb, milliseconds(named.get("after", "0s")))
                (error,) = await self.world.client.settle_leases(topic, group, [change])
            self._tell(f"{word}: {'ok' if error is None else error.code.wire}")

    # --- Half messages ----------------------------------------------------------------------

    async def _prepare(self, words: list[str], named: Named) -> None:
        topic, client = self.topics[words[0]], self.world.client
        peer = self._connected()
        for body in words[1:]:
            draft = Draft(body.encode())
            parts = draft.parts(client.batch(peer.session, peer).uid(), 0)
            name = f"H{len(self.halves) + 1}"
            self.halves[name] = (topic, await client.halves.prepare(topic, PRODUCERS, parts))
            self._tell(f'{name}: prepared "{body}"')

    async def _commit(self, words: list[str], named: Named) -> None:
        await self._end(words, commit=True)

    async def _rollback(self, words: list[str], named: Named) -> None:
        await self._end(words, commit=False)

    async def _end(self, words: list[str], *, commit: bool) -> None:
        for word in words:
            topic, token = self.halves[word]
            place = await self.world.client.halves.end(topic, token, commit=commit)
            self._tell(f"{word}: " + ("gone" if place is None else f"stored at {place[1]}"))

    def check(self, check: HalfCheck) -> None:
        """`HalfSink`: a producer is asked what became of its message."""
        named = {token: name for name, (_, token) in self.halves.items()}
        self._tell(f"{named[check.token]}: its producer is asked")

    # --- Time, and the process --------------------------------------------------------------

    async def _wait(self, words: list[str], named: Named) -> None:
        await asyncio.sleep(milliseconds(words[0]) / 1_000)

    async def _restart(self, words: list[str], named: Named) -> None:
        await self.world.restart()
        self._began()

    async def _crash(self, words: list[str], named: Named) -> None:
        await self.world.crash()
        self._began()

    def _began(self) -> None:
        self.peer = None
        self.consumers.clear()


def described(offset: int, slot: bytes, attempt: int) -> str:
    """A message as it was delivered."""
    found = messages.decode(slot)
    text = f'{offset} "{found.body.decode()}"'
    if attempt > 1:
        text += f" attempt {attempt}"
    if found.flags & Flag.DEAD_LETTER:
        last = msgspec.msgpack.decode(found.ext[Ext.DEAD_LETTER])[0]
        text += f" (from {last['topic']}: {last['reason']})"
    return text
