"""MessagingService of apache.rocketmq.v2: what each call does, and what becomes of its errors.

    call                              done in
    QueryRoute, QueryAssignment       routes
    SendMessage                       sending, and transactions
    EndTransaction                    transactions
    ReceiveMessage                    receiving
    PullMessage, QueryOffset, GetOffset, UpdateOffset      offsets
    RecallMessage                     recalling
    AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue      settling
    Heartbeat, NotifyClientTermination    here and in clients
    Telemetry                         telemetry
    all others                        refused here (`REFUSED`)

A call is bytes in and bytes out: requests are parsed here, so that bytes which are none get an
answer too. No call needs to know its client from before (docs/design/rocketmq.md).
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

import structlog

from adapters.rocketmq.origin import ORIGIN_BYTE
from kernel.common.errors import Fault, KernelError

from .. import errors
from ..clients.callers import CONFIGURE, CONSUME, INSPECT, PUBLISH
from ..clients.client_settings import Shown
from ..codec import answer_encoding as wire
from ..codec.stubs import (
    parse_heartbeat,
    parse_notify_client_termination,
    parse_query_assignment,
    parse_query_route,
)
from ..errors import Code, RocketmqError
from ..messages.checks import NO_LITE_TOPICS
from ..names import topic_name
from ..settings import STREAM_TOPICS_MAX
from ..topics import routes
from .call_counting import EMPTY, outcome_of
from .charging import charge_call
from .offsets import get_offset, pull_message, query_offset, update_offset
from .recalling import recall_message
from .receiving import Receives, consuming
from .sending import send_message
from .settling import ack_message, change_invisible_duration, forward_to_dead_letters
from .transactions import end_transaction

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from adapters.listener_figures import ListenerFigures

    from ..clients.callers import Caller
    from ..clients.registry import Extension
    from ..codec.answer_encoding import AnswerPlace
    from ..codec.stubs import Endpoints, Publishing, Settings, Subscription
    from ..environment import Call, Environment, Listener
    from ..topics.ready_topics import Topic
    from ..transport.fair_calls import FairCalls
    from .questions import Questions

    Unary = Callable[[bytes, Call], Awaitable[bytes]]
    Streaming = Callable[[bytes, Call], Awaitable[None]]
    Receiving = Callable[[bytes, Call, str], Awaitable[bool]]

SERVICE: Final = "apache.rocketmq.v2.MessagingService"

CLIENT_TYPE_MAX: Final = 6
"""The last of `enum ClientType`."""

REFUSED: Final[Mapping[str, str]] = {
    "SyncLiteSubscription": NO_LITE_TOPICS,
}
"""Calls that are not served, and what their client is told with UNSUPPORTED."""

_log = structlog.get_logger("weir.rocketmq")


class Service:
    """The calls of one adapter."""

    def __init__(self, environment: Environment, fair_calls: FairCalls) -> None:
        self.environment = environment
        self._fair_calls = fair_calls
        self._receives = Receives(environment)

    def unary_calls(self, listener: Listener) -> dict[str, Unary]:
        """Name to action, of every call with one answer. No action raises."""
        environment = self.environment

        async def query_route(data: bytes, call: Call) -> bytes:
            return await self._query_route(data, call, listener)

        async def query_assignment(data: bytes, call: Call) -> bytes:
            return await self._query_assignment(data, call, listener)

        served: dict[str, Unary] = {
            "QueryRoute": query_route,
            "QueryAssignment": query_assignment,
            "Heartbeat": self._heartbeat,
            "SendMessage": self._timed(partial(send_message, environment), listener),
            "EndTransaction": partial(end_transaction, environment),
            "AckMessage": partial(ack_message, environment),
            "ChangeInvisibleDuration": partial(change_invisible_duration, environment),
            "ForwardMessageToDeadLetterQueue": partial(forward_to_dead_letters, environment),
            "NotifyClientTermination": self._notify_client_termination,
            "RecallMessage": partial(recall_message, environment),
            "UpdateOffset": partial(update_offset, environment),
            "GetOffset": partial(get_offset, environment),
            "QueryOffset": partial(query_offset, environment),
        }
        served |= {name: self._refuse(name) for name in REFUSED}
        return {name: self._answering(name, action, listener) for name, action in served.items()}

    def streaming_calls(self, listener: Listener) -> dict[str, Streaming]:
        """Name to action, of every call whose answer is a stream. No action raises, unless the
        client has gone.
        """
        host, port = listener.bound.addresses[0]
        store_host = f"{host}:{port}"
        environment, turns = self.environment, self._fair_calls.turns
        figures = environment.figures_of[listener.name]

        async def stream(name: str, action: Receiving, data: bytes, call: Call) -> None:
            try:
                if turns.alone.name != (caller := environment.admit(call)).tenant:
                    await self._take_turn(caller, len(data))
                if environment.limiter.quotas.is_any:
                    await charge_call(environment, name, call, listener.name)
                is_empty = not await action(data, call, store_host)
            except (RocketmqError, KernelError) as error:
                await call.write(self._refusal(name, data, call, error, figures))
            except Exception:  # noqa: BLE001 - a bug: logged, and an answer instead of a hang-up
                await call.write(self._failure(name, data, call))
            else:
                if is_empty:
                    self._ended(name, data, call, EMPTY, call.bytes_out)
                else:
                    self._answered(name, data, call, call.bytes_out)

        actions: dict[str, Receiving] = {
            "ReceiveMessage": self._receives.receive,
            "PullMessage": partial(pull_message, self.environment),
        }
        return {name: partial(stream, name, action) for name, action in actions.items()}

    def refusal_of(self, call: Call, *, listener: Listener) -> bytes | None:
        """The answer to a call that its headers refuse, before any of its request is read."""
        try:
            self.environment.admit(call)
        except RocketmqError as error:
            figures = self.environment.figures_of[listener.name]
            return self._refusal("", b"", call, error, figures)
        return None

    # --- Errors -----------------------------------------------------------------------------

    def _answering(self, name: str, action: Unary, listener: Listener) -> Unary:
        """The action with its errors as answers."""
        environment, quotas = self.environment, self.environment.limiter.quotas
        turns, figures = self._fair_calls.turns, environment.figures_of[listener.name]

        async def answer(data: bytes, call: Call) -> bytes:
            try:
                if turns.alone.name != (caller := environment.admit(call)).tenant:
                    await self._take_turn(caller, len(data))
                if quotas.is_any:
                    await charge_call(environment, name, call, listener.name)
                result = await action(data, call)
            except (RocketmqError, KernelError) as error:
                return self._refusal(name, data, call, error, figures)
            except Exception:  # noqa: BLE001 - a bug: logged, and an answer instead of a hang-up
                return self._failure(name, data, call)
            self._answered(name, data, call, len(result))
            return result

        return answer

    def _timed(self, action: Unary, listener: Listener) -> Unary:
        """A call that publishes, with how long it takes until ok."""
        figures = self.environment.figures_of[listener.name]

        async def timed(data: bytes, call: Call) -> bytes:
            began_ms = figures.now_ms()
            result = await action(data, call)
            if result.startswith(wire.OK):
                figures.stored(began_ms)
            return result

        return timed

    async def _take_turn(self, caller: Caller, size: int) -> None:
        """Return when it is the turn of a call beside those of other tenants."""
        its_turn = self._fair_calls.wait(caller, size)
        if its_turn is not None:
            await its_turn

    def _answered(self, name: str, data: bytes, call: Call, bytes_out: int) -> None:
        """Count a call that was carried out (hot)."""
        meter, caller = self.environment.calls, call.caller
        if meter is not None and caller is not None:
            counters = caller.counters
            try:
                counter = counters[name]
            except KeyError:
                counter = counters[name] = meter.counter(caller.tenant, name)
            counter.call(len(data), bytes_out)

    def _ended(self, name: str, data: bytes, call: Call, outcome: str, bytes_out: int) -> None:
        """Count one that ended otherwise."""
        meter, caller = self.environment.calls, call.caller
        if meter is not None and caller is not None:
            meter.ended(caller.tenant, name, outcome, len(data), bytes_out)

    def _refusal(
        self,
        name: str,
        data: bytes,
        call: Call,
        error: RocketmqError | KernelError,
        figures: ListenerFigures,
    ) -> bytes:
        self.environment.counters.calls_refused += 1
        if isinstance(error, KernelError):
            if error.code.fault is Fault.SERVER:
                _log.warning("call not served", code=error.code.name, reason=error.message)
            error = errors.from_kernel(error)
        figures.refuse(error.code.name.lower())
        answer = wire.refusal(error)
        self._ended(name, data, call, outcome_of(error.code), len(answer))
        return answer

    def _failure(self, name: str, data: bytes, call: Call) -> bytes:
        self.environment.counters.calls_failed += 1
        _log.exception("internal error", call=name)
        self._ended(name, data, call, outcome_of(Code.INTERNAL_SERVER_ERROR), 0)
        return wire.status(Code.INTERNAL_SERVER_ERROR, "an error of the server; it was logged")

    def _refuse(self, name: str) -> Unary:
        async def answer(_data: bytes, call: Call) -> bytes:
            self.environment.admit(call)
            raise RocketmqError(Code.UNSUPPORTED, REFUSED[name])

        return answer

    # --- Routes -----------------------------------------------------------------------------

    async def _query_route(self, data: bytes, call: Call, listener: Listener) -> bytes:
        environment = self.environment
        settings, topics = environment.settings, environment.topics
        caller = environment.admit(call)
        request = parse_query_route(data)
        tenant, name = caller.tenant_of(request.topic)
        kernel_name = topic_name(name.name, settings)
        allows = caller.rights.allows
        may_look = any(allows(right, kernel_name) for right in (INSPECT, PUBLISH, CONSUME))
        caller.check(may_look, f"inspect topic {name.name}")
        place = self._place(caller, request.endpoints, listener)
        if settings.makes_topics_of(tenant) and allows(CONFIGURE, kernel_name):
            topic = await topics.find_or_make(tenant, kernel_name)
        else:
            topic = await topics.find(tenant, kernel_name)
        return routes.route(topic, name, settings.broker_name, place)

    async def _query_assignment(self, data: bytes, call: Call, listener: Listener) -> bytes:
        environment = self.environment
        caller = environment.admit(call)
        request = parse_query_assignment(data)
        place = self._place(caller, request.endpoints, listener)
        at = await consuming(environment, caller, request.topic, request.group)
        # Here, because it is the first that is heard of a push consumer: from now on it misses
        # nothing of a stream.
        topic = await environment.topics.with_group(at.topic, at.group)
        is_ordered = topic.info.groups[at.group].ordered
        broker = environment.settings.broker_name
        return routes.assignment(topic, at.name, broker, place, fifo=is_ordered)

    def _place(self, caller: Caller, endpoints: Endpoints, listener: Listener) -> AnswerPlace:
        """Where the caller finds its queues: here, unless it was asked to go elsewhere."""
        environment = self.environment
        key, now_ms = (caller.tenant, caller.client_id), environment.clock.monotonic_ms()
        elsewhere = environment.clients.address_for(key, listener.name, now_ms)
        if elsewhere is not None:
            return routes.place_named(elsewhere)
        is_node = caller.is_node
        return routes.place_seen(endpoints, listener.advertised, listener.bound, is_node=is_node)

    # --- Clients ----------------------------------------------------------------------------

    async def _heartbeat(self, data: bytes, call: Call) -> bytes:
        environment = self.environment
        caller = environment.admit(call)
        request = parse_heartbeat(data)
        if not 0 < request.client_type <= CLIENT_TYPE_MAX:
            text = f"there is no client type {request.client_type}"
            raise RocketmqError(Code.UNRECOGNIZED_CLIENT_TYPE, text)
        key = (caller.tenant, caller.client_id)
        environment.clients.heard_of(key, environment.clock.monotonic_ms())
        return wire.OK

    async def _notify_client_termination(self, data: bytes, call: Call) -> bytes:
        environment = self.environment
        caller = environment.admit(call)
        parse_notify_client_termination(data)
        ended = environment.clients.ended((caller.tenant, caller.client_id))
        await self.change_leases(ended)
        return wire.OK

    async def change_leases(self, calls: Sequence[Extension]) -> None:
        """Change leases that are renewed; those that are over are renewed no more."""
        environment = self.environment
        for call in calls:
            try:
                results = await environment.client.settle_leases(
                    call.topic, call.group, call.changes, ORIGIN_BYTE
                )
            except KernelError as error:
                _log.warning("leases not changed", topic=call.topic.name, reason=error.message)
                continue
            for renewal, failure in zip(call.renewals, results, strict=True):
                if failure is not None:
                    environment.clients.settled(renewal.token)

    async def shown_to(self, caller: Caller, wanted: Settings) -> Shown:
        """What settings of a client are to be answered with. What its settings name wrongly it
        hears when it calls for it, not here: it would wait for the answer for ever.
        """
        settings = self.environment.settings
        is_fifo, attempts_max = False, settings.attempts_max
        for topic, group in await self._subscribed(caller, wanted.subscription):
            options = topic.info.groups.get(group)
            is_fifo = is_fifo or (options.ordered if options is not None else topic.is_fifo)
            if options is not None and options.attempts_max is not None:
                attempts_max = options.attempts_max
        return Shown(is_node=caller.is_node, is_fifo=is_fifo, attempts_max=attempts_max)

    async def ask_about(self, questions: Questions, caller: Caller, told: Publishing) -> None:
        """A producer has told its topics: those of transactions it may be asked about. What it
        names wrongly it hears when it sends.
        """
        environment = self.environment
        for topic in islice(told.topics, STREAM_TOPICS_MAX):
            try:
                tenant, name = caller.tenant_of(topic)
                kernel_name = caller.topic_to_publish(name.name, environment.settings)
                found = await environment.topics.find(tenant, kernel_name)
                caller.check_into(found.info)
            except RocketmqError:
                continue
            questions.about(found, name)

    async def _subscribed(
        self, caller: Caller, subscription: Subscription
    ) -> list[tuple[Topic, str]]:
        """The topics of a subscription that exist and may be consumed, each with its group."""
        environment = self.environment
        found: list[tuple[Topic, str]] = []
        for entry in subscription.subscriptions:
            try:
                at = await consuming(environment, caller, entry.topic, subscription.group)
            except RocketmqError:
                continue
            found.append((at.topic, at.group))
        return found
