"""The gateway's side of pulls: each asks the leaders of the groups in which the topic's queues lie.

    several groups: asked one after the other what they have now; if none has anything, and the pull
    may wait, all of them at once. The first that brings something ends the pull, the others hear
    that nobody wants theirs.

A question has a number of this process. It is asked again, under the same number and for the time
that is left, when its connection breaks or its group has another leader. What a store has answered
is told to be taken once the caller of `receive` has it, else to be not wanted: so no lease is left
behind by a caller that went away, whatever was on its way then (`service`).

A waiting pull is a future that its caller awaits, a question for each group, and no task.

Bounds: PULLS_MAX questions; above it a pull is refused with BUSY.

Durability: messages under timed leases come with leases that a majority has fdatasynced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from ...api.client import Received, ReceiveSpec
from ...broker.delivery.consumers import Handed
from ...common.errors import Code, KernelError
from ...common.ids import QueueId, RaftGroup
from ...common.limits import PULL_ANSWER_MS
from ...common.ports import Clock
from ...requests.pull import NOTHING, tokens_of
from ...rpc.channel import Channel, Reply
from ...rpc.frame import RpcError
from ...rpc.handshake import Hello
from ..filter_wire import pack_filter
from ..leader_calls import call_numbers as calls
from ..leader_calls.call_wire import WireError
from ..leader_calls.leaders import AGAIN, QUESTION_MS, RemoteLeaders
from . import pull_wire

PULLS_MAX = 32_768
"""Questions of this process that wait for an answer: some 2 KiB each."""

RETRY_MS = 100
"""Questions that found no leader are asked again so often; at once when there is news of one."""

TAKEN_KEPT = 16_384
"""Numbers of the answers taken last: a store asks about those that it has not heard of, at most
`service.UNHEARD_MAX` each."""

_FROM_NOBODY = KernelError(Code.NOT_LEADER, "nobody is known to lead")
_Places = tuple[RaftGroup, list[QueueId]]
"""A group, and which of the topic's queues lie in it."""


class PullFigures:
    """Counters since this process began."""

    __slots__ = ("asked", "asked_again", "dropped", "over_pulls")

    def __init__(self) -> None:
        self.asked = 0
        self.asked_again = 0
        """Questions whose leader was another one, or gone."""
        self.dropped = 0
        """Answers that came when nobody wanted them any more."""
        self.over_pulls = 0
        """Refused at PULLS_MAX."""


class _Round:
    """Questions of which the first that brings something is enough."""

    __slots__ = ("found", "give_up_ms", "is_only_try", "questions", "spec", "until_ms")

    def __init__(
        self, spec: ReceiveSpec, found: asyncio.Future[_Question | None], until_ms: int
    ) -> None:
        self.spec = spec
        self.found = found
        self.until_ms = until_ms
        """When the pull's time is up."""
        self.give_up_ms = until_ms
        """When a question that finds no leader has failed."""
        self.is_only_try = False
        """Such a question is left to another round."""
        self.questions: dict[int, _Question] = {}
        """Those that are not answered yet."""


class _Question:
    __slots__ = ("channel", "group", "handed", "number", "of", "queues", "ready")

    def __init__(self, of: _Round, number: int, places: _Places) -> None:
        self.of = of
        self.number = number
        self.group, self.queues = places
        self.channel: Channel | None = None
        """Where it has been asked, or answered."""
        self.handed: Handed | None = None
        self.ready = 0


class FarPulls:
    """Pulls messages from the leaders of queues (`sections.Section`)."""

    methods = calls.PULLS

    def __init__(self, leaders: RemoteLeaders, clock: Clock, *, pulls_max: int = PULLS_MAX) -> None:
        self._leaders = leaders
        self._clock = clock
        self._pulls_max = pulls_max
        self._loop = asyncio.get_running_loop()
        self._numbers = 0
        self._round_robin = 0
        self._questions: dict[int, _Question] = {}
        self._stalled: dict[RaftGroup, dict[int, _Question]] = {}
        """Those that found no leader."""
        self._retry: asyncio.TimerHandle | None = None
        self._taken: dict[int, None] = {}
        self._forgotten = -1
        """The highest number that has been in `_taken` and is not any more."""
        self._brought: set[int] = set()
        """Answers on their way to their callers, within a turn of the loop."""
        self._to_tell: dict[Channel, tuple[list[int], list[int]]] = {}
        """(taken, not wanted) of this turn of the loop."""
        self.figures = PullFigures()
        leaders.add(self)
        leaders.watch(self._led)

    @property
    def waiting(self) -> int:
        """Questions without an answer."""
        return len(self._questions)

    async def receive(self, spec: ReceiveSpec) -> Received:
        """`client.Client.receive` under timed leases, of a topic that is not transient (for a
        session: `streams.pulls`). Also raises KernelError BUSY (PULLS_MAX), UNAVAILABLE (no leader
        to be found).
        """
        by_group: dict[RaftGroup, list[QueueId]] = {}
        for ref in spec.topic.queues:
            by_group.setdefault(ref.group, []).append(ref.id)
        places = list(by_group.items())
        until_ms = self._clock.monotonic_ms() + spec.wait_ms
        if len(places) > 1:
            self._round_robin += 1
            at = self._round_robin % len(places)
            places = places[at:] + places[:at]
            unanswered: list[_Places] = []
            for each in places:
                of = self._round(spec, [each], 0, is_only_try=True)
                found = await self._brought_by(of)
                if found is not None:
                    return found
                if of.questions:
                    unanswered.append(each)
            if not spec.wait_ms:
                places = unanswered
        if not places:
            return NOTHING
        return await self._brought_by(self._round(spec, places, until_ms)) or NOTHING

    def _round(
        self,
        spec: ReceiveSpec,
        places: Sequence[_Places],
        until_ms: int,
        *,
        is_only_try: bool = False,
    ) -> _Round:
        """Ask some of the groups."""
        if len(self._questions) + len(places) > self._pulls_max:
            self.figures.over_pulls += 1
            raise KernelError(Code.BUSY, f"{self._pulls_max} pulls of this gateway are waiting")
        of = _Round(spec, self._loop.create_future(), until_ms)
        of.give_up_ms = max(until_ms, self._clock.monotonic_ms() + QUESTION_MS)
        of.is_only_try = is_only_try
        for each in places:
            self._numbers += 1
            question = _Question(of, self._numbers, each)
            of.questions[question.number] = self._questions[question.number] = question
        for question in list(of.questions.values()):
            self._ask(question)
        return of

    async def _brought_by(self, of: _Round) -> Received | None:
        """What one of the groups brings."""
        try:
            found = await of.found
        except asyncio.CancelledError:
            self._close(of)
            if of.found.done() and not of.found.cancelled() and of.found.exception() is None:
                brought = of.found.result()
                if brought is not None:
                    self._drop(brought)
            raise
        if found is None or found.handed is None:
            return None
        self._take(found)
        return Received(found.handed, None, tokens_of(found.handed), found.ready)

    # --- Asking -----------------------------------------------------------------------------

    def _ask(self, question: _Question) -> None:
        of = question.of
        if question.number not in self._questions:
            return  # its round is over since another one has failed
        spec = of.spec
        channel = self._leaders.channel_to(question.group)
        if channel is None:
            self._stall(question, _FROM_NOBODY)
            return
        wait_ms = max(of.until_ms - self._clock.monotonic_ms(), 0)
        try:
            head = pull_wire.PullRequest(
                question.number,
                question.group,
                question.queues,
                spec.group,
                spec.messages,
                wait_ms,
                spec.lease_ms,
                pack_filter(spec.filter),
                spec.origin,
                spec.fair,
            )
        except KernelError as error:
            self._fail(of, error)
            return
        question.channel = channel
        self.figures.asked += 1
        answered = partial(self._answered, question, channel)
        try:
            parts = pull_wire.encode_pull(head)
            channel.call(pull_wire.PULL, parts, answered, wait_ms + PULL_ANSWER_MS)
        except KernelError as error:
            self._stall(question, error)

    def _answered(self, question: _Question, channel: Channel, answer: bytes | KernelError) -> None:
        is_wanted = question.number in self._questions and question.channel is channel
        if isinstance(answer, KernelError):
            if is_wanted and answer.code in AGAIN:
                if answer.code is Code.TIMEOUT:
                    self._tell(channel)[1].append(question.number)
                self.figures.asked_again += 1
                self._stall(question, answer)
            elif is_wanted:
                self._fail(question.of, answer)
            return
        try:
            handed, ready = pull_wire.decode_pulled(answer)
        except WireError as error:
            if is_wanted:
                message = f"a store's answer is none: {error}"
                self._fail(question.of, KernelError(Code.UNAVAILABLE, message))
            return
        if not is_wanted:
            if handed is not None:
                self.figures.dropped += 1
                self._tell(channel)[1].append(question.number)
            return
        question.handed, question.ready = handed, ready
        self._forget(question)
        of = question.of
        if handed is not None:
            self._close(of)
            if of.found.done():
                self._drop(question)
            else:
                self._brought.add(question.number)
                of.found.set_result(question)
        elif not of.questions and not of.found.done():
            of.found.set_result(None)

    def _forget(self, question: _Question) -> None:
        """It has been answered, or nobody waits for its answer."""
        self._questions.pop(question.number, None)
        question.of.questions.pop(question.number, None)
        stalled = self._stalled.get(question.group)
        if stalled is not None:
            stalled.pop(question.number, None)

    def _close(self, of: _Round) -> None:
        """Nobody waits for its questions any more."""
        for question in list(of.questions.values()):
            self._forget(question)
            if question.channel is not None:
                self._tell(question.channel)[1].append(question.number)

    def _fail(self, of: _Round, error: KernelError) -> None:
        self._close(of)
        if not of.found.done():
            of.found.set_exception(error)

    # --- Asking again -----------------------------------------------------------------------

    def _stall(self, question: _Question, error: KernelError) -> None:
        """It has to be asked again, of whoever leads then."""
        of, channel, question.channel = question.of, question.channel, None
        if of.is_only_try:
            self._questions.pop(question.number, None)
            if not of.found.done():  # its caller may have given up in this very turn
                of.found.set_result(None)
        else:
            self._stalled.setdefault(question.group, {})[question.number] = question
            if self._retry is None:
                self._retry = self._loop.call_later(RETRY_MS / 1_000, self._try_again)
        if error.code is not Code.BUSY:
            self._leaders.doubt(question.group, channel, error)

    def _try_again(self) -> None:
        self._retry = None
        now_ms = self._clock.monotonic_ms()
        for group in list(self._stalled):
            late = [each for each in self._stalled[group].values() if each.of.give_up_ms <= now_ms]
            for question in late:
                message = f"no leader of group {group} has answered"
                self._fail(question.of, KernelError(Code.UNAVAILABLE, message))
            self._led(group)
            if not self._stalled[group]:
                del self._stalled[group]
            elif self._leaders.channel_to(group) is None:
                self._leaders.doubt(group, None, _FROM_NOBODY)
        if self._stalled and self._retry is None:
            self._retry = self._loop.call_later(RETRY_MS / 1_000, self._try_again)

    def _led(self, group: RaftGroup) -> None:
        """A group may have a leader again."""
        stalled = self._stalled.get(group)
        if stalled and self._leaders.channel_to(group) is not None:
            waiting = list(stalled.values())
            stalled.clear()
            for question in waiting:
                self._ask(question)

    # --- What became of answers -------------------------------------------------------------

    def _take(self, question: _Question) -> None:
        """The caller has it."""
        self._brought.discard(question.number)
        self._taken[question.number] = None
        if len(self._taken) > TAKEN_KEPT:
            oldest = next(iter(self._taken))
            del self._taken[oldest]
            self._forgotten = max(self._forgotten, oldest)
        assert question.channel is not None
        self._tell(question.channel)[0].append(question.number)

    def _drop(self, question: _Question) -> None:
        """It came, and its caller has gone."""
        self.figures.dropped += 1
        self._brought.discard(question.number)
        assert question.channel is not None
        self._tell(question.channel)[1].append(question.number)

    def _tell(self, channel: Channel) -> tuple[list[int], list[int]]:
        """The lists of what a store hears after this turn of the loop."""
        lists = self._to_tell.get(channel)
        if lists is None:
            if not self._to_tell:
                self._loop.call_soon(self._tell_all)
            lists = self._to_tell[channel] = [], []
        return lists

    def _tell_all(self) -> None:
        to_tell, self._to_tell = self._to_tell, {}
        for channel, (taken, dropped) in to_tell.items():
            # A store that cannot be reached asks when it can be (UNHEARD).
            channel.cast(pull_wire.HEARD, pull_wire.encode_heard(taken, dropped), control=True)

    # --- sections.Section -------------------------------------------------------------------

    def opened(self, channel: Channel, peer: Hello) -> None:
        """A store can be reached; what it leads is told by itself (`_led`)."""

    def closed(self, channel: Channel) -> None:
        """It cannot be reached any more: every question to it hears so by itself."""

    def told(self, channel: Channel, method: int, payload: bytes) -> None:
        """A store has answers that it thinks were lost. Those that are asked for again by this
        connection it sends once more.
        """
        if method != pull_wire.UNHEARD:
            raise RpcError(f"method {method} is not told to gateways")
        try:
            numbers = pull_wire.decode_unheard(payload)
        except WireError as error:
            raise RpcError(str(error)) from None
        taken, dropped = self._tell(channel)
        for number in numbers:
            question = self._questions.get(number)
            if question is not None and question.channel is not channel:
                dropped.append(number)
                if question.channel and self._leaders.channel_to(question.group) is channel:
                    # What its last leader answers from now on is of leases that are given back.
                    self._stall(question, _FROM_NOBODY)
            elif number in self._taken or number <= self._forgotten:
                taken.append(number)
            elif question is None and number not in self._brought:
                dropped.append(number)

    def called(self, channel: Channel, method: int, payload: bytes, reply: Reply) -> None:
        """A store asks nothing."""
        raise RpcError(f"method {method} is not asked of gateways")
