"""Calls of a leader and their answers as bytes."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import pytest

from kernel.api.atomic import TRANSACTION_PARTS_MAX, TRANSACTION_SETTLEMENTS_MAX
from kernel.api.client import ConsumerSpec, LeaseVerb, Settlement
from kernel.api.message import HEADER_BYTES, SLOT_BYTES_SMALL
from kernel.api.model import (
    GroupOptions,
    QueueRef,
    Reason,
    Route,
    RouterInfo,
    RouterOptions,
    TopicInfo,
    TopicOptions,
    TopicStatistics,
)
from kernel.broker.index.features import COPY, CUT, LARGE
from kernel.broker.log_commands import commands, tree_commands
from kernel.broker.log_commands.resize_commands import WindowPart
from kernel.common.errors import Code, KernelError
from kernel.common.ids import Offset, QueueId, RaftGroup, TopicId
from kernel.remote.leader_calls import call_numbers as calls
from kernel.remote.leader_calls import call_wire as wire
from kernel.remote.leader_calls.transaction_wire import (
    decode_prepare,
    decode_transact,
    encode_prepare,
    encode_transact,
)
from kernel.remote.streams.parts import CreditPool, StreamPart
from kernel.requests.leader import LeaseChanging, Settling, Together
from kernel.requests.publish_part import Part

AT = (RaftGroup(3), 9)
WHO = (2**64 - 1, 2**32 - 1, 2**64 - 1)
QUEUE = QueueId(1 << 40)
SLOT = b"s" * HEADER_BYTES
TOPIC = TopicInfo(
    "default",
    "t",
    TopicId(1),
    2,
    TopicOptions(declarations={"test": b"x"}),
    (QueueRef(QUEUE, RaftGroup(3)),),
    {"default": GroupOptions()},
)
ROUTER = RouterInfo("default", "r", 1, RouterOptions(), (Route(topic="t", key="k"),))
WINDOW = WindowPart(7, 1, [(b"id", 6, bytes(16), 1_000)])
OPENED = tree_commands.Opened(1, 2, True, {("share", "a/b"): b"o"}, {b"n": b"v"})
ERROR = KernelError(Code.ALREADY_EXISTS, "topic t exists")


def _publish() -> bytes:
    runs = [[QUEUE, 0, 2, 0], [QUEUE + 1, 1, 1, 5]]
    lengths, buffers = [HEADER_BYTES, HEADER_BYTES + 3], [SLOT[:10], SLOT[10:], SLOT, b"abc"]
    part = Part(runs, lengths, buffers, [("default", 1)])
    return b"".join(wire.encode_publish(AT, WHO, part, 4))


def _transact() -> bytes:
    change = LeaseChanging(Offset(7), 8, LeaseVerb.RELEASE, Reason.ATTEMPTS, 9)
    nothing = cast("Any", None)
    spec = ConsumerSpec(TOPIC, "g", None)
    part, gone = (
        StreamPart(nothing, number, TOPIC.queues[0], spec, nothing, CreditPool(), (0, 0))
        for number in (77, 78)
    )
    gone.is_gone = True
    messages = Part(
        [[QUEUE, 0, 1, 0]],
        [len(SLOT)],
        [SLOT],
        [("default", 0)],
        [("default", "a/b", 0, 1, 0)],
    )
    what = Together(
        messages,
        [
            Settling(part, Settlement.ACK, Reason.REJECTED, [3, 5]),
            Settling(gone, Settlement.RELEASE, Reason.REJECTED, [1]),
        ],
        [(QUEUE, "g", [change])],
    )
    return b"".join(encode_transact(AT, WHO, what, 4))


def _prepare() -> bytes:
    return b"".join(encode_prepare(AT, WHO, "makers", QUEUE, [SLOT[:5], SLOT[5:]]))


def _propose() -> bytes:
    change = commands.PutTopic(
        "default", "t", TopicOptions(), {"g": GroupOptions()}, True, TopicId(5), (1, 2)
    )
    return b"".join(wire.encode_propose(AT, WHO, change))


def _change_leases() -> bytes:
    change = LeaseChanging(Offset(7), 8, LeaseVerb.RELEASE, Reason.ATTEMPTS, 9)
    return b"".join(wire.encode_change_leases(AT, WHO, QUEUE, "g", [change], 4))


def _since() -> bytes:
    return b"".join(wire.encode_question(calls.Since(3, QUEUE, calls.TIME_MS_MAX)))


def _results() -> bytes:
    results = (None, True, 5, [1, [(2, b"uid")]], ERROR, TOPIC, ROUTER, OPENED, WINDOW)
    return b"".join(wire.encode_results(results))


def _page() -> bytes:
    return b"".join(wire.encode_page([(Offset(1), b"one"), (Offset(4), b"four")], ended=True))


def test_a_publish_arrives_with_its_slots_in_one_piece() -> None:
    head, part = wire.decode_publish(_publish())
    assert (head.group, head.lane, head.identity, head.origin) == (*AT, WHO, 4)
    assert part.runs == [(QUEUE, 0, 2, 0), (QUEUE + 1, 1, 1, 5)]
    assert part.lengths == [HEADER_BYTES, HEADER_BYTES + 3]
    assert part.retained == [("default", 1)]
    assert part.buffers == [SLOT + SLOT + b"abc"]


def test_the_slots_of_a_publish_are_sent_as_the_buffers_they_are() -> None:
    body = bytes(1 << 20)
    part = Part([[QUEUE, 0, 1, 0]], [len(body)], [body])
    parts = wire.encode_publish(AT, WHO, part, 1)
    assert parts[-1] is body
    assert len(parts) == 2


def test_a_transaction_arrives_with_the_streams_that_its_consumers_are() -> None:
    head, changes, part = decode_transact(_transact())
    assert (head.group, head.lane, head.identity, head.origin) == (*AT, WHO, 4)
    assert (part.runs, part.lengths) == ([(QUEUE, 0, 1, 0)], [HEADER_BYTES])
    assert (part.retained, part.routed) == ([("default", 0)], [("default", "a/b", 0, 1, 0)])
    ack, release = (Settlement.ACK, Settlement.RELEASE)
    rejected = Reason.REJECTED
    assert head.settlements == [(77, ack, rejected, [3, 5]), (0, release, rejected, [1])]
    change = LeaseChanging(Offset(7), 8, LeaseVerb.RELEASE, Reason.ATTEMPTS, 9)
    assert changes == [(QUEUE, "g", [change])]
    assert part.buffers == [SLOT]


def test_a_transaction_beyond_its_limits_or_with_nothing_in_a_part_is_refused() -> None:
    change = LeaseChanging(Offset(7), 8, LeaseVerb.ACK, Reason.ATTEMPTS, 0)
    for changes in (
        [(QUEUE, "g", [])],
        [(QUEUE, "g", [change] * (TRANSACTION_SETTLEMENTS_MAX + 1))],
        [(QUEUE, "g", [change])] * (TRANSACTION_PARTS_MAX + 1),
    ):
        what = Together(Part([], [], []), (), changes)
        payload = b"".join(encode_transact(AT, WHO, what, 4))
        with pytest.raises(wire.WireError):
            decode_transact(payload)


def test_a_half_message_arrives_as_one_slot() -> None:
    head, slot = decode_prepare(_prepare())
    assert (head.group, head.lane, head.identity) == (*AT, WHO)
    assert (head.queue, head.producers, slot) == (QUEUE, "makers", SLOT)


@pytest.mark.parametrize("said", [0, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("size", [SLOT_BYTES_SMALL, SLOT_BYTES_SMALL + 1])
def test_the_store_finds_out_by_itself_how_a_publish_is_billed(said: int, size: int) -> None:
    runs = [[QUEUE, 0, 1, said | COPY], [QUEUE, 1, 1, said]]
    routed = [("default", "a/b", 1, 1, said)]
    sent = Part(runs, [HEADER_BYTES, size], [SLOT, bytes(size)], (), routed)
    _, part = wire.decode_publish(b"".join(wire.encode_publish(AT, WHO, sent, 1)))
    found = LARGE if size > SLOT_BYTES_SMALL else 0
    assert [bits for *_, bits in part.runs] == [COPY, found]
    assert [bits for *_, bits in part.routed] == [found]


def test_a_run_that_only_a_leader_may_have_cut_is_refused() -> None:
    for runs, routed in (
        ([[QUEUE, 0, 1, CUT]], []),
        ([[QUEUE, 0, 1, 0]], [("default", "a", 0, 1, CUT)]),
    ):
        part = Part(runs, [len(SLOT)], [SLOT], (), routed)
        parts = wire.encode_publish(AT, WHO, part, 1)
        with pytest.raises(wire.WireError):
            wire.decode_publish(b"".join(parts))


def _propose_all() -> bytes:
    changes = [
        tree_commands.JoinIndex("default", "a/+", "own/7", 5),
        tree_commands.LeaveIndex("default", "b", "g"),
    ]
    return b"".join(wire.encode_propose_all(AT, WHO, changes))


def test_several_commands_arrive_in_their_order() -> None:
    head, changes = wire.decode_propose_all(_propose_all())
    assert (head.group, head.lane, head.identity) == (*AT, WHO)
    assert changes == [
        tree_commands.JoinIndex("default", "a/+", "own/7", 5),
        tree_commands.LeaveIndex("default", "b", "g"),
    ]
    for bad in (commands.LeaderStart("7", True), commands.ResolveHalf(QueueId(0), 1, True)):
        with pytest.raises(wire.WireError):
            wire.decode_propose_all(b"".join(wire.encode_propose_all(AT, WHO, [bad])))


def test_administration_lease_changes_and_purges_arrive() -> None:
    _, change = wire.decode_propose(_propose())
    assert isinstance(change, commands.PutTopic)
    assert (change.name, change.placement) == ("t", (1, 2))
    head, changes = wire.decode_change_leases(_change_leases())
    assert (head.queue, head.name, head.origin) == (QUEUE, "g", 4)
    assert changes == [LeaseChanging(Offset(7), 8, LeaseVerb.RELEASE, Reason.ATTEMPTS, 9)]
    returned = LeaseChanging(Offset(8), 9, LeaseVerb.RETURN, Reason.REJECTED, 0, 5_000)
    parts = wire.encode_change_leases(AT, WHO, QUEUE, "g", [*changes, returned], 4)
    assert wire.decode_change_leases(b"".join(parts))[1] == [*changes, returned]
    purge = wire.decode_purge(b"".join(wire.encode_purge(AT, WHO, QUEUE, "g", in_flight=True)))
    assert (purge.queue, purge.name, purge.in_flight) == (QUEUE, "g", True)


def test_every_kind_of_result_arrives() -> None:
    results = wire.decode_results(_results())
    assert results[:4] == (None, True, 5, [1, [(2, b"uid")]])
    assert results[1] is True
    error = results[4]
    assert isinstance(error, KernelError)
    assert (error.code, error.message) == (ERROR.code, ERROR.message)
    assert results[5:] == (TOPIC, ROUTER, OPENED, WINDOW)


def test_a_question_for_a_time_arrives_unless_no_clock_could_show_it() -> None:
    question = calls.Since(3, QUEUE, calls.TIME_MS_MAX)
    assert wire.decode_since(_since()) == question
    for time_ms in (-1, calls.TIME_MS_MAX + 1):
        (payload,) = wire.encode_question(calls.Since(3, QUEUE, time_ms))
        with pytest.raises(wire.WireError):
            wire.decode_since(payload)


def test_answers_to_questions_arrive() -> None:
    assert wire.decode_page(_page()) == ([(1, b"one"), (4, b"four")], True)
    assert wire.decode_offset(b"".join(wire.encode_offset(Offset(2**64 - 1)))) == 2**64 - 1
    figures = TopicStatistics(1, 2, 3, None, 4, 5)
    assert wire.decode_statistics(b"".join(wire.encode_figures(figures))) == figures
    standings = [calls.Standing(1, 5, 2), calls.Standing(2, 6, 0)]
    assert list(wire.decode_standings(b"".join(wire.encode_standings(standings)))) == standings
    addresses = [calls.StoreAddress(1, "store1", 7_401)]
    assert wire.decode_addresses(b"".join(wire.encode_addresses(addresses))) == addresses


@pytest.mark.parametrize(
    ("runs", "lengths", "retained"),
    [
        ([[QUEUE, 1, 1, 0]], [HEADER_BYTES], []),
        ([[QUEUE, 0, 0, 0]], [HEADER_BYTES], []),
        ([[QUEUE, 0, 1, 1 << 16]], [HEADER_BYTES], []),
        ([[-1, 0, 1, 0]], [HEADER_BYTES], []),
        ([[QUEUE, 0, 1, 0]], [HEADER_BYTES - 1], []),
        ([[QUEUE, 0, 1, 0]], [HEADER_BYTES], [("default", 1)]),
        ([[QUEUE, 0, 1, 0]], [HEADER_BYTES], [("ü" * 200, 0)]),
    ],
)
def test_a_publish_that_would_not_fit_an_entry_is_refused(
    runs: list[list[int]], lengths: list[int], retained: list[tuple[str, int]]
) -> None:
    part = Part(runs, lengths, [bytes(sum(lengths))], retained)
    parts = wire.encode_publish(AT, WHO, part, 1)
    with pytest.raises(wire.WireError):
        wire.decode_publish(b"".join(parts))


@pytest.mark.parametrize("change", [commands.LeaderStart("7", True), commands.RaiseLevel(1)])
def test_only_leaders_begin_terms_and_raise_levels(change: commands.Control) -> None:
    with pytest.raises(wire.WireError):
        wire.decode_propose(b"".join(wire.encode_propose(AT, WHO, change)))
    with pytest.raises(wire.WireError):
        wire.decode_propose_all(b"".join(wire.encode_propose_all(AT, WHO, [change])))


@pytest.mark.parametrize(
    ("sample", "decode"),
    [
        (_publish, wire.decode_publish),
        (_transact, decode_transact),
        (_prepare, decode_prepare),
        (_propose, wire.decode_propose),
        (_propose_all, wire.decode_propose_all),
        (_change_leases, wire.decode_change_leases),
        (_since, wire.decode_since),
        (_results, wire.decode_results),
        (_page, wire.decode_page),
        (_page, wire.decode_statistics),
        (_page, wire.decode_standings),
        (_page, wire.decode_addresses),
        (_page, wire.decode_figures),
        (_page, wire.decode_peek),
        (_page, wire.decode_offset),
        (_page, wire.decode_purge),
    ],
)
def test_bytes_that_were_changed_are_decoded_or_refused(
    sample: Callable[[], bytes], decode: Callable[[bytes], object]
) -> None:
    chance = random.Random(7)
    whole = sample()
    refused = 0
    for _ in range(3_000):
        changed = bytearray(whole[: chance.choice((len(whole), chance.randrange(len(whole))))])
        for _ in range(chance.randrange(4)):
            if changed:
                changed[chance.randrange(len(changed))] = chance.randrange(256)
        try:
            decode(bytes(changed))
        except wire.WireError:
            refused += 1
    assert refused > 500
    with suppress(wire.WireError):
        decode(b"")
