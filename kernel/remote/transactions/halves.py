"""The gateway's side of questions about half messages: its producers can be asked by every leader.

Every store hears of each producer group that has a connection here, once; a question goes to one of
these connections, in turn. Which gateway is asked is the leader's choice.
"""

from __future__ import annotations

from ...api.transactions import HalfSink
from ...requests.half_watches import HalfWatches, Key
from ...rpc.channel import Channel, Reply
from ...rpc.frame import RpcError
from ...rpc.handshake import Hello
from ..leader_calls import call_numbers as calls
from ..leader_calls.call_wire import WireError
from ..leader_calls.leaders import RemoteLeaders
from . import half_wire


class FarHalves:
    """`sections.Section`, and `half_message_client.Watching`."""

    methods = calls.HALVES

    def __init__(self, leaders: RemoteLeaders) -> None:
        self._leaders = leaders
        self._watches = HalfWatches()
        self.unheard = 0
        """Questions whose last producer had just gone."""
        leaders.add(self)

    # --- half_desk.Watching -----------------------------------------------------------------

    def add(self, key: Key, sink: HalfSink) -> None:
        """One more connection of a producer group."""
        if self._watches.add(key, sink):
            self._tell([key], [])

    def remove(self, key: Key, sink: HalfSink) -> None:
        """A connection hears no more."""
        if self._watches.remove(key, sink):
            self._tell([], [key])

    def _tell(self, come: list[Key], gone: list[Key]) -> None:
        for channel in self._leaders.channels:
            channel.cast(half_wire.WATCH, half_wire.encode_watch(come, gone), control=True)

    # --- sections.Section -------------------------------------------------------------------

    def opened(self, channel: Channel, peer: Hello) -> None:
        """A store can be reached."""
        if keys := self._watches.keys:
            channel.cast(half_wire.WATCH, half_wire.encode_watch(keys, []), control=True)

    def closed(self, channel: Channel) -> None:
        """It cannot be reached any more, and forgets by itself."""

    def told(self, channel: Channel, method: int, payload: bytes) -> None:
        """A leader asks."""
        if method != half_wire.CHECK:
            raise RpcError(f"method {method} is not told to gateways")
        try:
            check = half_wire.decode_check(payload)
        except WireError as error:
            raise RpcError(str(error)) from None
        sink = self._watches.next((check.tenant, check.producers))
        if sink is None:
            self.unheard += 1
        else:
            sink.check(check)

    def called(self, channel: Channel, method: int, payload: bytes, reply: Reply) -> None:
        """Nobody waits for an answer to a question: it comes as an end of the half message."""
        raise RpcError(f"method {method} is not asked of gateways")
