"""The leader's side of what gateways settle: acks, and settlements with and without an answer.

TAKEN tells how far what has come is applied, so that the gateway need not repeat it: not of every
turn, since nobody waits for it.

Durability: SETTLED and TAKEN leave once the settlements are applied, so on a majority's disks; but
for a RETURN, which no log knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...api.client import Settlement
from ...broker.delivery.consumers import DispatchedConsumer
from ...common.errors import KernelError
from ...common.ids import RaftGroup
from ...rpc.channel import Channel
from . import stream_wire
from .gateways import ConsumingGateway, GatewayStream
from .led_groups import LedGroups

TAKEN_SECONDS = 0.02
"""Between two TAKEN of a gateway and group: what settles without an answer is applied by then
(`limits.SETTLE_DELAY_MS`), and a gateway that repeats 20 ms of it does no harm."""


class Settling:
    """Carries out what gateways settle."""

    def __init__(self, led: LedGroups, settled: Callable[[GatewayStream], None]) -> None:
        """`settled(stream)` is called when something of a stream has been settled."""
        self._led = led
        self._settled = settled
        self._loop = asyncio.get_running_loop()

    def block(self, gateway: ConsumingGateway, block: stream_wire.Block) -> None:
        """Carry out what a turn has brought for a group that is served here (hot)."""
        group = RaftGroup(block.group)
        touched: dict[GatewayStream, None] = {}
        for number, offsets in block.acks:
            stream = gateway.streams.get(number)
            if stream is not None and stream.consumer is not None:
                stream.consumer.dispatcher.acknowledge(stream.consumer, offsets)
                touched[stream] = None
        for each in block.settles:
            stream = gateway.streams.get(each.stream)
            if stream is not None and stream.consumer is not None:
                self._settle(gateway, stream, stream.consumer, each)
                touched[stream] = None
        for stream in touched:
            self._settled(stream)
        self._await(gateway, group, block.number)

    def _settle(
        self,
        gateway: ConsumingGateway,
        stream: GatewayStream,
        consumer: DispatchedConsumer,
        each: stream_wire.Settle,
    ) -> None:
        dispatcher, group = consumer.dispatcher, stream.group
        strangers = dispatcher.settle(
            consumer, each.how, each.offsets, each.reason, urgent=each.is_answered
        )
        if not each.is_answered:
            return

        def applied(result: object) -> None:
            if isinstance(result, KernelError):  # the gateway asks again, at whoever leads then
                return
            failed = strangers
            if each.is_repeat and each.how in (Settlement.ACK, Settlement.DEAD_LETTER):
                progress = dispatcher.queue.groups.get(dispatcher.group)
                failed = [at for at in strangers if progress and not progress.is_acked(at)]
            elif each.is_repeat:
                failed = []
            gateway.tell(stream_wire.SETTLED, stream_wire.Settled(group, each.number, failed))

        if each.how is Settlement.RETURN:
            applied(None)
            return
        replica = self._led.replica(group)
        replica.open.wait(applied)
        self._led.dirty(replica, urgent=True)

    def _await(self, gateway: ConsumingGateway, group: RaftGroup, number: int) -> None:
        """Have the gateway told in a while how far what has come is applied."""
        if group not in gateway.confirming:
            confirm = self._confirm
            self._loop.call_later(TAKEN_SECONDS, confirm, gateway, gateway.channel, group)
        gateway.confirming[group] = number

    def _confirm(
        self, gateway: ConsumingGateway, channel: Channel | None, group: RaftGroup
    ) -> None:
        number = gateway.confirming.pop(group, 0)
        if not number or gateway.channel is not channel or self._led.serving(group) is None:
            return

        def applied(result: object) -> None:
            if gateway.channel is channel and not isinstance(result, KernelError):
                gateway.tell(stream_wire.TAKEN, (group, number))

        self._led.replica(group).when_applied(applied)
