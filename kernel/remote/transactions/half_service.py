"""The store's side of questions about half messages: gateways stand among those who are asked.

Bounds: WATCHES_MAX producer groups of one gateway; a question to a gateway that reads too slowly is
left out. Both are counted; the next question of a message follows by itself.
"""

from __future__ import annotations

from ...api.transactions import HalfCheck
from ...requests.half_watches import HalfWatches, Key
from ...rpc.channel import Channel, Reply
from ...rpc.frame import RpcError
from ...rpc.handshake import Hello
from ..leader_calls import call_numbers as calls
from ..leader_calls.call_wire import WireError
from . import half_wire

WATCHES_MAX = 65_536
"""Producer groups of one gateway: some 200 bytes each. Those beyond are not asked through it."""


class HalfServiceFigures:
    """Counters since this process began."""

    __slots__ = ("over_watches", "unsent")

    def __init__(self) -> None:
        self.over_watches = 0
        """Producer groups ignored at WATCHES_MAX."""
        self.unsent = 0
        """Questions left out, since too much waited for the gateway."""


class _Gateway:
    """`transactions.HalfSink`: all producers of a gateway."""

    __slots__ = ("_channel", "_figures", "keys")

    def __init__(self, channel: Channel, figures: HalfServiceFigures) -> None:
        self._channel = channel
        self._figures = figures
        self.keys: set[Key] = set()

    def check(self, check: HalfCheck) -> None:
        """Have one of them asked."""
        if not self._channel.cast(half_wire.CHECK, half_wire.encode_check(check)):
            self._figures.unsent += 1


class HalfService:
    """Keeps gateways among those who are asked about half messages (`sections.Section`)."""

    methods = calls.HALVES

    def __init__(self, watches: HalfWatches, *, watches_max: int = WATCHES_MAX) -> None:
        """`watches`: who is asked by the leaders of this store."""
        self._watches = watches
        self._watches_max = watches_max
        self._gateways: dict[Channel, _Gateway] = {}
        self.figures = HalfServiceFigures()

    def opened(self, channel: Channel, peer: Hello) -> None:
        """A gateway has come; it tells by itself who its producers are."""
        self._gateways[channel] = _Gateway(channel, self.figures)

    def closed(self, channel: Channel) -> None:
        """It is gone, and its producers with it."""
        gateway = self._gateways.pop(channel, None)
        if gateway is not None:
            for key in gateway.keys:
                self._watches.remove(key, gateway)

    def told(self, channel: Channel, method: int, payload: bytes) -> None:
        """Producers have come or gone."""
        if method != half_wire.WATCH:
            raise RpcError(f"method {method} is not told to stores")
        try:
            come, gone = half_wire.decode_watch(payload)
        except WireError as error:
            raise RpcError(str(error)) from None
        gateway = self._gateways[channel]
        for key in gone:
            gateway.keys.discard(key)
            self._watches.remove(key, gateway)
        for key in come:
            if key in gateway.keys:
                continue
            if len(gateway.keys) >= self._watches_max:
                self.figures.over_watches += 1
                continue
            gateway.keys.add(key)
            self._watches.add(key, gateway)

    def called(self, channel: Channel, method: int, payload: bytes, reply: Reply) -> None:
        """Half messages come in lanes (`lane_service`)."""
        raise RpcError(f"method {method} is not asked of stores")
