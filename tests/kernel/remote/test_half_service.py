"""Which gateways are asked about half messages: bounds, and one that reads too slowly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from kernel.api.transactions import HalfCheck
from kernel.remote.transactions import half_wire
from kernel.remote.transactions.half_service import HalfService
from kernel.requests.half_watches import HalfWatches
from kernel.rpc.channel import Channel
from kernel.rpc.frame import RpcError
from tests.kernel.rpc.pair import hello

CHECK = HalfCheck("default", "orders", b"token", b"slot", 7, 1, "payers")
PAYERS = ("default", "payers")


class Line:
    """What the service needs of a channel."""

    def __init__(self, *, takes: bool = True) -> None:
        self.takes = takes
        self.told: list[HalfCheck] = []

    def cast(self, method: int, parts: Sequence[bytes], *, control: bool = False) -> bool:
        assert (method, control) == (half_wire.CHECK, False)
        if self.takes:
            self.told.append(half_wire.decode_check(b"".join(parts)))
        return self.takes


def opened(service: HalfService, line: Line) -> Channel:
    channel = cast("Channel", line)
    service.opened(channel, hello(0, role="gateway"))
    return channel


def watch(
    service: HalfService,
    channel: Channel,
    come: list[tuple[str, str]],
    gone: list[tuple[str, str]] | None = None,
) -> None:
    payload = b"".join(half_wire.encode_watch(come, gone or []))
    service.told(channel, half_wire.WATCH, payload)


def ask(watches: HalfWatches) -> None:
    sink = watches.next(PAYERS)
    assert sink is not None
    sink.check(CHECK)


def test_gateways_are_asked_in_turn_while_they_have_producers() -> None:
    watches = HalfWatches()
    service = HalfService(watches)
    lines = [Line(), Line()]
    one, two = (opened(service, line) for line in lines)
    for channel in (one, two, one):
        watch(service, channel, [PAYERS])
    for _ in range(4):
        ask(watches)
    assert [line.told for line in lines] == [[CHECK] * 2, [CHECK] * 2]
    watch(service, one, [], [PAYERS])
    ask(watches)
    assert len(lines[1].told) == 3
    service.closed(two)
    assert watches.next(PAYERS) is None
    assert not watches.keys


def test_producer_groups_beyond_the_bound_are_not_asked() -> None:
    watches = HalfWatches()
    service = HalfService(watches, watches_max=2)
    channel = opened(service, Line())
    watch(service, channel, [("default", each) for each in ("a", "b", "c")])
    assert watches.keys == [("default", "a"), ("default", "b")]
    assert service.figures.over_watches == 1
    watch(service, channel, [("default", "c")], [("default", "a")])
    assert watches.keys == [("default", "b"), ("default", "c")]


def test_a_question_to_a_gateway_that_reads_too_slowly_is_left_out() -> None:
    watches = HalfWatches()
    service = HalfService(watches)
    watch(service, opened(service, Line(takes=False)), [PAYERS])
    ask(watches)
    assert service.figures.unsent == 1


@pytest.mark.parametrize("payload", [b"", b"\xff", b"\x92\x90", b"\x92\x91\x92\xa1t\xa0\x90"])
def test_what_is_no_watch_is_refused(payload: bytes) -> None:
    service = HalfService(HalfWatches())
    channel = opened(service, Line())
    with pytest.raises(RpcError):
        service.told(channel, half_wire.WATCH, payload)
