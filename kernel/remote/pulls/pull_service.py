"""The store's side of pulls: each is carried out here by consumers on the queues asked for.

    PULL -> waiting -> messages have come -> unheard -> HEARD: taken       -> forgotten
                                                     -> HEARD: not wanted  -> ready again
                    -> time is up, HEARD: not wanted, the connection broke -> nothing happened

A pull costs no task: a consumer for each queue, a timer, and an answer.

A lease must not lie idle until its time because its answer was lost. So an answer with messages is
kept until the gateway has heard it. After a connection has broken, the gateway has AWAY_MS to come
back: it is told which answers it may have missed (UNHEARD), says of each whether a client got it,
and asks again under the same number for what it still waits for. If it does not come back, its
unheard answers are released, which counts as an attempt: a client may have seen them. What the last
leader of a group has leased to a gateway (`lost_leases`) is asked about in the same way.

Bounds: PULLS_MAX waiting pulls of a gateway. While UNHEARD_MAX answers or UNHEARD_BYTES_MAX of them
are on their way to it, its waiting pulls are given no more.

Durability: an answer leaves once its leases are fdatasynced.
"""

from __future__ import annotations

import asyncio
from functools import partial

from ...api.client import ReceiveSpec
from ...api.model import QueueRef
from ...broker.delivery.consumers import Handed
from ...common.errors import Code, KernelError
from ...common.ids import QueueId, RaftGroup
from ...common.limits import SESSION_CLAIM_MS
from ...in_process.opening import LocalStore
from ...in_process.receiving import begin_pull
from ...requests.pull import Pull
from ...rpc.channel import Channel, Reply
from ...rpc.frame import RpcError
from ...rpc.handshake import Hello
from ...store.replicas.noted_leases import SINCE_MS
from ...store.replicas.replica import Replica
from ..filter_wire import unpack_filter
from ..leader_calls import call_numbers as calls
from ..leader_calls.call_wire import WireError
from ..streams.gateways import Unconcerned
from . import pull_wire
from .lost_leases import Lost, keep_lost, lost_leases, note_of, tag_of

PULLS_MAX = 32_768
"""Waiting pulls of one gateway at one store: some 2 KiB each."""

MESSAGES_MAX = 1_024
"""Messages of one pull: more are a matter of more pulls."""

ANSWER_BYTES_MAX = 16 * 1024 * 1024
"""Slots in one answer, but for the first one: far below a frame's limit."""

UNHEARD_MAX = 1_024
UNHEARD_BYTES_MAX = 32 * 1024 * 1024
"""As much as a connection keeps waiting for its socket."""

AWAY_MS = SESSION_CLAIM_MS
"""How long a gateway whose connection has broken keeps what it may have been given (ADR 9)."""

_NOTHING = pull_wire.encode_pulled(None, 0)


class PullFigures:
    """Counters since this process began."""

    __slots__ = ("asked", "over_pulls", "paused", "released", "returned")

    def __init__(self) -> None:
        self.asked = 0
        self.returned = 0
        """Messages that were leased for an answer that nobody wanted."""
        self.released = 0
        """Messages of answers to gateways that never came back."""
        self.over_pulls = 0
        """Refused at PULLS_MAX."""
        self.paused = 0
        """Times that a gateway had too many answers on their way."""


class _Question:
    """A pull that was asked for."""

    __slots__ = (
        "answer",
        "gateway",
        "group",
        "handed",
        "name",
        "number",
        "origin",
        "pull",
        "reply",
        "size",
    )

    def __init__(self, gateway: _Gateway, head: pull_wire.PullRequest, reply: Reply) -> None:
        self.gateway = gateway
        self.number = head.number
        self.group = RaftGroup(head.group)
        self.name = head.name
        self.origin = head.origin
        self.reply = reply
        self.pull: Pull | None = None
        self.handed: Handed | None = None
        self.answer: list[bytes] = []
        self.size = 0


class _Gateway:
    """A process that pulls."""

    __slots__ = ("away", "channel", "is_paused", "process", "size", "tag", "unheard", "waiting")

    def __init__(self, process: str) -> None:
        self.process = process
        self.tag = tag_of(process)
        self.channel: Channel | None = None
        self.waiting: dict[int, _Question] = {}
        self.unheard: dict[int, _Question] = {}
        self.size = 0
        """Bytes of unheard answers."""
        self.is_paused = False
        self.away: asyncio.TimerHandle | None = None


class PullService(Unconcerned):
    """`sections.Section`, and `store.listener.Listener`."""

    methods = calls.PULLS

    def __init__(
        self,
        local: LocalStore,
        *,
        pulls_max: int = PULLS_MAX,
        unheard_max: int = UNHEARD_MAX,
        unheard_bytes_max: int = UNHEARD_BYTES_MAX,
        away_ms: int = AWAY_MS,
    ) -> None:
        self._store = local.store
        self._client = local.client
        self._loop = asyncio.get_running_loop()
        self._pulls_max = pulls_max
        self._unheard_max = unheard_max
        self._unheard_bytes_max = unheard_bytes_max
        self._away_ms = away_ms
        self._gateways: dict[str, _Gateway] = {}
        self._ended: list[_Question] = []
        self._lost: Lost = {}
        """What the last leader of a group may have leased
        without being heard."""
        self.figures = PullFigures()

    @property
    def waiting(self) -> int:
        """Pulls that wait for messages."""
        return sum(len(each.waiting) for each in self._gateways.values())

    @property
    def unheard(self) -> int:
        """Answers with messages that gateways have not heard yet."""
        return sum(len(each.unheard) for each in self._gateways.values())

    # --- sections.Section -------------------------------------------------------------------

    def opened(self, channel: Channel, peer: Hello) -> None:
        """A gateway has come, or come back."""
        gateway = self._gateways.get(peer.store)
        if gateway is None:
            gateway = self._gateways[peer.store] = _Gateway(peer.store)
        gateway.channel = channel
        if gateway.away is not None:
            gateway.away.cancel()
            gateway.away = None
        numbers = [*gateway.unheard, *self._lost.get(gateway.tag, ())]
        if numbers:
            channel.cast(pull_wire.UNHEARD, pull_wire.encode_unheard(numbers), control=True)

    def closed(self, channel: Channel) -> None:
        """It is gone: nobody waits any more, and what it may have been given is kept for now."""
        gateway = self._gateways.get(channel.peer.store)
        if gateway is None or gateway.channel is not channel:
            return
        gateway.channel = None
        waiting, gateway.waiting = gateway.waiting, {}
        for question in waiting.values():
            self._stop(question)
        if gateway.unheard:
            away = partial(self._forget, gateway)
            gateway.away = self._loop.call_later(self._away_ms / 1_000, away)
        else:
            del self._gateways[gateway.process]

    def _forget(self, gateway: _Gateway) -> None:
        """It has not come back."""
        del self._gateways[gateway.process]
        if self._client.is_draining:
            return
        for question in gateway.unheard.values():
            assert question.handed is not None
            self.figures.released += len(question.handed.offsets)
            handed, leases = question.handed, self._client.leases
            ref = QueueRef(handed.queue, question.group)
            leases.release(ref, question.name, handed.lease, handed.offsets)

    def told(self, channel: Channel, method: int, payload: bytes) -> None:
        """What became of answers."""
        if method != pull_wire.HEARD:
            raise RpcError(f"method {method} is not told to stores")
        try:
            taken, dropped = pull_wire.decode_heard(payload)
        except WireError as error:
            raise RpcError(str(error)) from None
        gateway = self._gateways[channel.peer.store]
        for number in taken:
            self._heard(gateway, number)
            self._disowned(gateway, number, is_wanted=True)
        for number in dropped:
            self._disowned(gateway, number, is_wanted=False)
            question = self._heard(gateway, number)
            if question is not None:
                assert question.handed is not None
                self._give_back(question, question.handed)
                continue
            question = gateway.waiting.pop(number, None)
            if question is not None:
                self._stop(question)
                question.reply(_NOTHING)
        self._resume(gateway)

    def called(self, channel: Channel, method: int, payload: bytes, reply: Reply) -> None:
        """A pull is asked for."""
        if method != pull_wire.PULL:
            raise RpcError(f"method {method} is not asked of stores")
        try:
            head = pull_wire.decode_pull(payload)
        except WireError as error:
            raise RpcError(str(error)) from None
        gateway = self._gateways[channel.peer.store]
        self._disowned(gateway, head.number, is_wanted=False)
        known = gateway.unheard.get(head.number)
        if known is not None:
            reply(known.answer)
            return
        known = gateway.waiting.get(head.number)
        if known is not None:
            known.reply = reply
            return
        try:
            self._begin(gateway, head, reply)
        except KernelError as error:
            gateway.waiting.pop(head.number, None)
            reply(self._hinted(RaftGroup(head.group), error))

    def _hinted(self, group: RaftGroup, error: KernelError) -> KernelError:
        """An error; that of a node which does not lead says who does."""
        if error.code is not Code.NOT_LEADER:
            return error
        leads = self._store.standing(group)[1] if group in self._store.groups else 0
        return KernelError(Code.NOT_LEADER, f"this node does not serve group {group}", leads)

    # --- Pulls ------------------------------------------------------------------------------

    def _begin(self, gateway: _Gateway, head: pull_wire.PullRequest, reply: Reply) -> None:
        group = RaftGroup(head.group)
        if self._store.serving(group) is None:
            raise KernelError(Code.NOT_LEADER, "")
        if len(gateway.waiting) >= self._pulls_max:
            self.figures.over_pulls += 1
            raise KernelError(Code.BUSY, f"{self._pulls_max} pulls of this gateway wait here")
        if gateway.is_paused and not head.wait_ms:
            raise KernelError(Code.BUSY, "too many answers are on their way to this gateway")
        replica = self._store.replica(group)
        # The gateway may not have heard of a resize: what is gone holds nothing for it.
        queues = [each for each in map(QueueId, head.queues) if not replica.is_retired(each)]
        if not queues:
            reply(_NOTHING)
            return
        dispatchers = [replica.dispatcher(each, head.name) for each in queues]
        topic = dispatchers[0].queue.topic.info()
        self._client.used(topic.id, head.name)
        spec = ReceiveSpec(
            topic,
            head.name,
            messages=min(head.messages, MESSAGES_MAX),
            wait_ms=head.wait_ms,
            lease_ms=head.lease_ms,
            filter=unpack_filter(head.filter),
            origin=head.origin,
            fair=head.fair,
            note=note_of(gateway.tag, head.number),
        )
        self.figures.asked += 1
        question = gateway.waiting[head.number] = _Question(gateway, head, reply)
        ended = partial(self._has_ended, question)
        question.pull = begin_pull(spec, dispatchers, self._loop, ended, paused=gateway.is_paused)
        if question.pull is None:
            del gateway.waiting[head.number]
            reply(_NOTHING)

    def _has_ended(self, question: _Question) -> None:
        """Called from inside a dispatcher's turn."""
        if not self._ended:
            self._loop.call_soon(self._answer_all)
        self._ended.append(question)

    def _answer_all(self) -> None:
        """Answer the pulls that ended in this turn of the loop."""
        ended, self._ended = self._ended, []
        for question in ended:
            if question.gateway.waiting.get(question.number) is question:
                del question.gateway.waiting[question.number]
                self._answer(question)

    def _answer(self, question: _Question) -> None:
        pull, gateway = question.pull, question.gateway
        assert pull is not None
        pull.close()
        try:
            handed = pull.handed()
        except KernelError as error:
            question.reply(self._hinted(question.group, error))
            return
        if handed is None:
            question.reply(_NOTHING)
            return
        self._trim(question, handed)
        question.handed = handed
        question.size = sum(map(len, handed.slots))
        question.answer = pull_wire.encode_pulled(handed, pull.ready)
        gateway.unheard[question.number] = question
        gateway.size += question.size
        question.reply(question.answer)
        if not gateway.is_paused and (
            len(gateway.unheard) >= self._unheard_max or gateway.size >= self._unheard_bytes_max
        ):
            self.figures.paused += 1
            gateway.is_paused = True
            for other in gateway.waiting.values():
                assert other.pull is not None
                other.pull.pause()

    def _resume(self, gateway: _Gateway) -> None:
        """Go on once half of what was on its way has been heard."""
        if (
            not gateway.is_paused
            or len(gateway.unheard) > self._unheard_max // 2
            or gateway.size > self._unheard_bytes_max // 2
        ):
            return
        gateway.is_paused = False
        for question in list(gateway.waiting.values()):
            assert question.pull is not None
            question.pull.resume()

    def _trim(self, question: _Question, handed: Handed) -> None:
        """Give back what would make an answer too large."""
        size = 0
        for at, slot in enumerate(handed.slots):
            size += len(slot)
            if at and size > ANSWER_BYTES_MAX:
                over = Handed(handed.queue, handed.offsets[at:], handed.slots[at:], None)
                over.lease = handed.lease
                self._give_back(question, over)
                del handed.offsets[at:], handed.slots[at:]
                if handed.attempts is not None:
                    del handed.attempts[at:]
                return

    # --- What the last leader gave ----------------------------------------------------------

    def leads(self, replica: Replica) -> None:
        """A group is served here from now on: ask gateways whether they have heard what the last
        leader has leased to them.
        """
        if replica.group not in self._store.groups:
            return
        lost = lost_leases(replica)
        for tag, leases in lost.items():
            self._lost.setdefault(tag, {}).update(leases)
        for gateway in self._gateways.values():
            leases = lost.get(gateway.tag, {})
            if leases and gateway.channel is not None:
                numbers = pull_wire.encode_unheard(list(leases))
                gateway.channel.cast(pull_wire.UNHEARD, numbers, control=True)
        if lost:
            self._loop.call_later(SINCE_MS / 1_000, self._own_up, lost)

    def follows(self, replica: Replica) -> None:
        """A group is not served here any more: its next leader asks."""
        keep_lost(self._lost, lambda each: each.group != replica.group)

    def _own_up(self, lost: Lost) -> None:
        """Nobody has said that these leases are nobody's: they run to their time."""
        known = {each for leases in lost.values() for each in leases.values()}
        keep_lost(self._lost, lambda each: each not in known)

    def _disowned(self, gateway: _Gateway, number: int, *, is_wanted: bool) -> None:
        """A gateway says whether it has heard of a lease; if not, the messages are ready again."""
        leases = self._lost.get(gateway.tag)
        lost = leases.pop(number, None) if leases is not None else None
        if lost is not None and not is_wanted:
            self.figures.returned += len(lost.slot_sizes)
            ref, give_back = QueueRef(lost.queue, lost.group), self._client.leases.give_back
            give_back(ref, lost.name, lost.lease, lost.slot_sizes, lost.origin)

    # --- What nobody wants ------------------------------------------------------------------

    def _heard(self, gateway: _Gateway, number: int) -> _Question | None:
        """An answer is on its way no more."""
        question = gateway.unheard.pop(number, None)
        if question is not None:
            gateway.size -= question.size
        return question

    def _stop(self, question: _Question) -> None:
        """End a pull that nobody has been answered."""
        pull = question.pull
        assert pull is not None
        pull.close()
        try:
            handed = pull.handed()
        except KernelError:
            return
        if handed is not None:
            self._give_back(question, handed)

    def _give_back(self, question: _Question, handed: Handed) -> None:
        self.figures.returned += len(handed.offsets)
        ref, leases = QueueRef(handed.queue, question.group), self._client.leases
        sizes = dict(zip(handed.offsets, map(len, handed.slots), strict=True))
        leases.give_back(ref, question.name, handed.lease, sizes, question.origin)
