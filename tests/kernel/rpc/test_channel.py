from __future__ import annotations

import pytest

from kernel.common.errors import Code, KernelError
from kernel.rpc.channel import BULK_BYTES_MAX, HANDSHAKE_MS, PING_MS, SILENT_MS
from kernel.rpc.frame import FRAGMENT_BYTES, RpcFrameKind, encode
from kernel.rpc.handshake import VERSIONS, Hello
from kernel.rpc.roles import Roles
from tests.kernel.rpc.pair import Pair, hello


def code_of(answer: bytes | KernelError) -> Code:
    assert isinstance(answer, KernelError)
    return answer.code


@pytest.mark.parametrize("chunk", [1, 1 << 30])
def test_both_ends_know_each_other_after_the_handshake(chunk: int) -> None:
    pair = Pair()
    pair.dialer.start()
    pair.carry(chunk)
    assert pair.dialer.is_open
    assert pair.acceptor.is_open
    assert [each.node for each in pair.notes[0].opened_by] == [2]
    assert [each.node for each in pair.notes[1].opened_by] == [1]


def test_another_secret_is_refused_with_a_reason_and_tells_nothing_else() -> None:
    asked: list[Hello] = []

    def admit(who: Hello) -> str | None:
        asked.append(who)
        return None

    pair = Pair(secrets=(b"wrong", b"right"), admit=admit).start()
    assert not pair.dialer.is_open
    assert not pair.acceptor.is_open
    assert "secret" in pair.notes[0].closed_for[0]
    assert "secret" in pair.notes[1].closed_for[0]
    assert not asked
    assert not pair.notes[1].opened_by


def test_a_node_that_may_not_join_hears_why() -> None:
    pair = Pair(admit=lambda who: f"node {who.node} was removed").start()
    assert pair.notes[0].closed_for == ["refused by the other end: node 1 was removed"]
    assert pair.notes[1].closed_for == ["node 1 was removed"]
    assert pair.dialer.was_turned_away


def test_who_turns_another_away_does_not_say_that_it_was_refused() -> None:
    """Its health would tell what is wrong with whoever has come."""
    pair = Pair(admit=lambda who: f"node {who.node} was removed").start()
    roles = Roles()
    roles.closed(pair.acceptor, pair.notes[1].closed_for[0])
    assert (pair.acceptor.was_refused, pair.acceptor.was_turned_away) == (True, False)
    assert not roles.refused
    roles.closed(pair.dialer, pair.notes[0].closed_for[0])
    assert roles.refused == "refused by the other end: node 1 was removed"


def test_versions_that_do_not_meet_are_refused() -> None:
    pair = Pair(hellos=(hello(1, versions=(VERSIONS[1] + 1,) * 2), hello(2))).start()
    assert "versions" in pair.notes[0].closed_for[0]


def test_a_proof_of_another_connection_is_worth_nothing() -> None:
    first = Pair()
    first.dialer.start()
    said = b"".join(first.dialer.take(1 << 20))
    first.acceptor.receive(said, 1_000)
    first.dialer.receive(b"".join(first.acceptor.take(1 << 20)), 1_000)
    proof = b"".join(first.dialer.take(1 << 20))
    second = Pair(hellos=(hello(1), hello(2, nonce=b"n" * 16)))
    second.acceptor.receive(said, 1_000)
    second.acceptor.receive(proof, 1_000)
    assert "secret" in second.notes[1].closed_for[0]


def test_calls_are_answered_in_any_order() -> None:
    pair = Pair().start()
    pair.notes[1].answers_at_once = False
    pair.call(b"one")
    pair.call(b"two")
    pair.carry()
    first, second = pair.notes[1].replies
    second([b"2"])
    first(KernelError(Code.NOT_FOUND, "no such thing"))
    pair.carry()
    assert pair.answers[0] == b"2"
    assert code_of(pair.answers[1]) is Code.NOT_FOUND
    assert str(pair.answers[1]) == "no such thing"


def test_large_messages_go_both_ways_whole() -> None:
    pair = Pair().start()
    body = bytes(range(256)) * (5 * FRAGMENT_BYTES // 256)
    pair.call(body)
    pair.carry(chunk=100_000)
    assert pair.answers == [body[::-1]]


def test_a_control_message_overtakes_bulk_that_waits() -> None:
    pair = Pair().start()
    assert pair.dialer.cast(1, [bytes(4 * FRAGMENT_BYTES)])
    first = b"".join(pair.dialer.take(1))
    assert pair.dialer.cast(2, [b"heartbeat"], control=True)
    pair.acceptor.receive(first, pair.now_ms)
    pair.acceptor.receive(b"".join(pair.dialer.take(1)), pair.now_ms)
    assert pair.notes[1].told_of == [(2, b"heartbeat")]
    pair.carry()
    assert [method for method, _ in pair.notes[1].told_of] == [2, 1]


def test_a_broken_connection_tells_which_calls_cannot_have_been_executed() -> None:
    pair = Pair().start()
    pair.call(b"has left")
    pair.dialer.take(1 << 20)
    pair.call(b"has not")
    pair.dialer.broken("cable cut")
    assert [code_of(each) for each in pair.answers] == [Code.UNKNOWN_OUTCOME, Code.NOT_LEADER]
    assert pair.notes[0].closed_for == ["cable cut"]
    with pytest.raises(KernelError) as refused:
        pair.call(b"later")
    assert refused.value.code is Code.NOT_LEADER
    assert not pair.dialer.cast(1, [b"x"])


def test_a_call_without_answer_ends_at_its_deadline_and_a_late_answer_is_dropped() -> None:
    pair = Pair().start()
    pair.notes[1].answers_at_once = False
    pair.call(b"slow", timeout_ms=500)
    pair.carry()
    pair.pass_time(499)
    assert not pair.answers
    pair.pass_time(1)
    assert code_of(pair.answers[0]) is Code.TIMEOUT
    pair.notes[1].replies[0]([b"late"])
    pair.carry()
    assert len(pair.answers) == 1


def test_what_waits_is_bounded_and_said_so() -> None:
    pair = Pair().start()
    part = bytes(BULK_BYTES_MAX // 4)
    taken = 0
    while pair.dialer.cast(1, [part]):
        taken += 1
    assert 3 <= taken <= 5
    with pytest.raises(KernelError) as refused:
        pair.call(part)
    assert refused.value.code is Code.BUSY
    pair.carry()
    assert pair.dialer.cast(1, [part])


def test_an_idle_connection_pings_and_a_silent_one_is_broken() -> None:
    pair = Pair().start()
    for _ in range(10):
        pair.pass_time(PING_MS)
        pair.carry()
    assert pair.dialer.is_open
    for _ in range(SILENT_MS // PING_MS + 1):
        pair.pass_time(PING_MS)
        for end in pair.ends:
            end.take(1 << 20)  # the wire swallows everything
    assert "silent" in pair.notes[0].closed_for[0]
    assert "silent" in pair.notes[1].closed_for[0]


def test_a_handshake_that_does_not_come_to_an_end_is_cut_off() -> None:
    pair = Pair()
    pair.dialer.start()
    pair.pass_time(HANDSHAKE_MS + 1)
    assert "handshake" in pair.notes[0].closed_for[0]


def test_goodbye_is_heard_with_its_reason() -> None:
    pair = Pair().start()
    pair.dialer.close("draining")
    pair.carry()
    assert pair.notes[1].closed_for == ["the other end has said goodbye: draining"]


def test_garbage_closes_the_connection_and_nothing_else() -> None:
    pair = Pair().start()
    pair.acceptor.receive(b"\xff" * 100, pair.now_ms)
    assert pair.acceptor.is_closed
    assert len(pair.notes[1].closed_for) == 1
    pair = Pair()
    pair.acceptor.receive(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", pair.now_ms)
    assert pair.acceptor.is_closed


@pytest.mark.parametrize(
    "payload",
    [b"\x81\xa7cluster\xa2\xff\xfe", b"\x81\xa1x" + b"\x91" * 4_000, b"\xc1", b""],
    ids=["no UTF-8", "too deep", "no msgpack", "nothing"],
)
def test_a_stranger_whose_hello_does_not_decode_is_cut_off(payload: bytes) -> None:
    pair = Pair()
    for frame in encode(RpcFrameKind.HELLO, 0, 0, [payload], control=True):
        pair.acceptor.receive(b"".join(frame), pair.now_ms)
    assert pair.acceptor.is_closed
    assert "no hello" in pair.notes[1].closed_for[0]
