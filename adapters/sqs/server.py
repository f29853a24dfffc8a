"""The driver: listeners, the clock, tasks, and the adapter as a whole.

HTTP is served by our own connections (`connection`) over httptools' parser, not by uvicorn, which
took a sixth of the CPU of a SendMessage: docs/adr/0006.

    start -> (serving) -> drain: no new connection, long polls answered empty, each connection
    closed after its answer -> stop: what is left is dropped
"""

from __future__ import annotations

import asyncio
from email.utils import formatdate
from typing import TYPE_CHECKING, Final

import structlog

from adapters.base import AdapterStatistics
from adapters.fair_scheduler import fair_scheduler_of
from adapters.limiting import Limiter
from adapters.listener_figures import ListenerFigures
from adapters.memory import GatewayMemory
from adapters.moving import Moving
from adapters.refused import Refused
from adapters.sqs.origin import ORIGIN_BYTE
from adapters.transport import Listeners, Tasks
from kernel.common.keyed_lock import KeyedLock
from kernel.quotas.accounts import Quotas

from .actions.call_counting import ACTIONS
from .app import SqsApplication
from .connection import HttpConnection
from .environment import Environment
from .gate import Gate
from .http.refusal import Refusal
from .messages.stored import register_origin
from .names import is_queue_name
from .queues.ready_queues import Queues
from .settings import REQUEST_S_MAX
from .waiting import LongPolls, SharedBatches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from adapters.base import Holder, ListenerAddress, Rights, TrafficMeter
    from adapters.moving import ConsumersByKey
    from auth.sign_in.sigv4 import SigV4Verifier
    from auth.users.records import AccessKey
    from kernel.api.client import Client
    from kernel.common.ports import Clock, Random

    from .environment import Catalogue
    from .settings import SqsSettings

_log = structlog.get_logger("weir.sqs")

TICK_S: Final = 1
"""How often the Date header is renewed and stalled or idle clients are looked for."""


class SqsAdapter:
    """SQS, served (`adapters.base.Adapter`)."""

    name = "sqs"

    def __init__(
        self,
        client: Client,
        catalogue: Catalogue,
        verifier: SigV4Verifier,
        rights_of: Callable[[AccessKey], Rights | None],
        listeners: Sequence[ListenerAddress],
        settings: SqsSettings,
        *,
        clock: Clock,
        random: Random,
        meter: TrafficMeter | None = None,
        memory: GatewayMemory | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        """Made on the event loop that will serve it; nothing is bound before `start`.

        `verifier` works in the mode `settings.sign_in`; `rights_of` gives the rights of a key's
        principal, None if it is gone.
        """
        self._loop = asyncio.get_running_loop()
        self._settings = settings
        self._memory = memory or GatewayMemory(clock)
        self.memory_of = {
            each.name: self._memory.listener(self.name, each.name) for each in listeners
        }
        self.figures_of = {
            each.name: ListenerFigures(self.name, each.name, clock) for each in listeners
        }
        register_origin(client.origins)
        self._session = client.open_session("sqs", ORIGIN_BYTE)
        self._polls = LongPolls(client)
        names = [each.name for each in listeners]
        self.refused = Refused(_log, clock, self.name, names, Refusal)
        self._environment = Environment(
            client=client,
            catalogue=catalogue,
            clock=clock,
            settings=settings,
            queues=Queues(client),
            publisher=SharedBatches(client, self._session, self._loop),
            polls=self._polls,
            locks=KeyedLock(),
            refused=self.refused,
            limiter=Limiter(self.name, quotas or Quotas(), client, clock),
            calls=meter.calls(ACTIONS) if meter is not None else None,
        )
        gate = Gate(verifier, settings.sign_in, rights_of, settings.accounts)
        self.application = SqsApplication(self._environment, gate, random, settings.advertised)
        self.counters = self._environment.counters
        self.tasks = Tasks(self._loop)
        self.turns = fair_scheduler_of(client, self._loop)
        self.ticks = 0
        self.date = b""
        self._listeners: Listeners[HttpConnection] = Listeners(
            self._loop,
            listeners,
            lambda listener: HttpConnection(self, listener, self._loop),
            self.memory_of,
            settings.connections_max,
        )
        # Who asks is known of each request alone; of a connection, the host.
        self._moving: Moving[HttpConnection] = Moving(
            lambda each: each.peer.rpartition(":")[0], lambda each: each.peer.rpartition(":")[0]
        )
        self._timer: asyncio.TimerHandle | None = None

    # --- adapters.base.Adapter --------------------------------------------------------------

    async def start(self) -> None:
        """Bind every listener. Raises OSError if one cannot be bound; then none is."""
        self._renew_date()
        await self._listeners.start()
        self._timer = self._loop.call_later(TICK_S, self._tick)

    def addresses(self) -> Mapping[str, tuple[str, int]]:
        """Listener name to the address bound."""
        return self._listeners.addresses()

    def move(
        self, amount: int, to: Mapping[str, str], consumers_by_key: ConsumersByKey | None = None
    ) -> int:
        """Close connections behind their next answer (`Connection: close`): the client's pool opens
        another, by the name of its endpoint. HTTP has no word for where to.
        """
        movable = [each for each in self._listeners.connections if each.keeps_alive]
        moved = 0
        now_ms = int(self._loop.time() * 1_000)
        for connection in self._moving.chosen(
            movable, amount, consumers_by_key, lambda each: each.consumer_key, now_ms
        ):
            connection.shut_down()
            moved += 1
        return moved

    def holders(self) -> Iterable[Holder]:
        """See `adapters.base.Adapter`. Requests are signed each; what waits are long polls."""
        return self._polls.holders()

    def connections(self) -> Iterable[HttpConnection]:
        """See `adapters.base.Adapter`."""
        return list(self._listeners.connections)

    async def drain(self) -> None:
        """Take no new connection; return when every request is answered and its client gone."""
        await self._listeners.stop_accepting()
        self._polls.drain()
        for connection in tuple(self._listeners.connections):
            connection.shut_down()
        await self._listeners.wait_until_empty()

    async def stop(self) -> None:
        """Drop what is left, at once. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        await self._listeners.stop_accepting()
        self._polls.drain()
        self._listeners.abort_all()
        await self._listeners.wait_until_empty()
        await self.tasks.stop()
        self._session.close()

    def spells(self, topic: str) -> bool:
        """Whether it could be the name of a queue."""
        return is_queue_name(topic)

    def statistics(self) -> AdapterStatistics:
        """Figures now."""
        return AdapterStatistics(
            connections=len(self._listeners.connections),
            counters={
                **{name: getattr(self.counters, name) for name in self.counters.__slots__},
                "revoked": self._polls.revoked,
            },
            gauges={"long_polls": len(self._polls)},
            refused=self.refused.counts,
            listeners=list(self.figures_of.values()),
            staying=self._moving.staying(),
        )

    # --- connection.ConnectionHost ----------------------------------------------------------

    def entered(self, connection: HttpConnection) -> bool:
        """A connection has opened; False: there are too many."""
        out = self._listeners.entered(connection)
        if out is not None and out is not connection:
            out.crowded_out()
        self.counters.connections += out is not connection
        return out is not connection

    def known(self, connection: HttpConnection) -> None:
        """Somebody has signed a request."""
        self._listeners.known(connection)
        connection.figures.signed_in(connection)

    def left(self, connection: HttpConnection) -> None:
        """A connection has closed."""
        self._listeners.left(connection)

    # --- time -------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK_S, self._tick)
        self.ticks += TICK_S
        self._memory.look()
        self._renew_date()
        for connection in tuple(self._listeners.connections):
            connection.sweep(REQUEST_S_MAX, self._settings.idle_timeout_s)

    def _renew_date(self) -> None:
        now_s = self._environment.clock.wall_ms() // 1000
        self.date = formatdate(now_s, usegmt=True).encode()
