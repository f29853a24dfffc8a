"""The class tx frame by frame: what takes effect when, what goes back, and the bounds."""

from __future__ import annotations

import pytest

from adapters.amqp import limits
from adapters.amqp.channel.transaction import MODES, Mode
from adapters.amqp.codec import spec
from adapters.amqp.codec.method_base import Method
from adapters.amqp.errors import INTERNAL_ERROR, NOT_FOUND, PRECONDITION_FAILED
from kernel.api import atomic
from kernel.api.client import Settlement
from kernel.common.errors import Code, KernelError
from tests.adapters.amqp.consuming import consuming, deliveries, fill, queue
from tests.adapters.amqp.wire import Content, Wire, close_of, stored_in


def transactional(wire: Wire) -> Wire:
    assert wire.ask(1, spec.TxSelect()) == spec.TxSelectOk()
    return wire


def bodies(wire: Wire, name: str = "q") -> list[bytes]:
    return [each.body for each in stored_in(wire, name)]


# --- Modes ----------------------------------------------------------------------------------

SELECT = {
    Mode.PLAIN: (),
    Mode.CONFIRMING: (spec.ConfirmSelect(),),
    Mode.TRANSACTIONAL: (spec.TxSelect(),),
}
ANSWERS: dict[type[Method], Method] = {
    spec.ConfirmSelect: spec.ConfirmSelectOk(),
    spec.TxSelect: spec.TxSelectOk(),
    spec.TxCommit: spec.TxCommitOk(),
    spec.TxRollback: spec.TxRollbackOk(),
}


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("method", [each() for each in ANSWERS], ids=lambda each: each.wire_name)
def test_every_mode_and_method(mode: Mode, method: Method) -> None:
    wire = Wire().open()
    wire.send(1, *SELECT[mode])
    wire.take()
    answer = wire.ask(1, method)
    expected = MODES[method.key][mode]
    if isinstance(expected, str):
        assert close_of(answer) == (PRECONDITION_FAILED, f"PRECONDITION_FAILED - {expected}")
    else:
        assert answer == ANSWERS[type(method)]
        assert wire.connection.channels[1].mode is expected


# --- Publishes ------------------------------------------------------------------------------


def test_publishes_take_effect_at_the_commit_and_in_order() -> None:
    wire = Wire().open()
    wire.declare("q")
    transactional(wire)
    for body in (b"1", b"2", b""):
        wire.publish(1, "", "q", body)
    wire.publish(1, "", "q", b"long" * 40_000)
    assert bodies(wire) == []
    assert wire.ask(1, spec.TxCommit()) == spec.TxCommitOk()
    assert bodies(wire) == [b"1", b"2", b"", b"long" * 40_000]
    assert wire.ask(1, spec.TxCommit()) == spec.TxCommitOk()  # an empty one
    assert len(bodies(wire)) == 4
    assert (wire.environment.counters.published, wire.environment.counters.commits) == (4, 2)


def test_rolled_back_publishes_are_gone() -> None:
    wire = Wire().open()
    wire.declare("q")
    transactional(wire)
    wire.publish(1, "", "q", b"1")
    assert wire.ask(1, spec.TxRollback()) == spec.TxRollbackOk()
    wire.publish(1, "", "q", b"2")
    assert wire.ask(1, spec.TxCommit()) == spec.TxCommitOk()
    assert bodies(wire) == [b"2"]
    assert wire.environment.counters.rollbacks == 1


def test_another_channel_of_the_connection_is_not_in_the_transaction() -> None:
    wire = Wire().open(channels=2)
    wire.declare("q")
    transactional(wire)
    wire.publish(1, "", "q", b"held")
    wire.publish(2, "", "q", b"at once")
    assert bodies(wire) == [b"at once"]


def test_an_unroutable_mandatory_message_is_returned_before_commit_ok() -> None:
    wire = transactional(Wire().open())
    wire.publish(1, "", "nowhere", b"x", mandatory=True)
    wire.publish(1, "", "nowhere", b"y")
    assert wire.take() == []
    wire.send(1, spec.TxCommit())
    returned, content, answer = wire.take_methods()
    assert isinstance(returned, spec.BasicReturn)
    assert isinstance(content, Content)
    assert (returned.reply_code, content.body, answer) == (312, b"x", spec.TxCommitOk())


def test_messages_are_routed_by_what_is_declared_at_the_commit() -> None:
    wire = transactional(Wire().open())
    wire.publish(1, "", "later", b"x", mandatory=True)
    wire.declare("later")
    assert wire.ask(1, spec.TxCommit()) == spec.TxCommitOk()
    assert bodies(wire, "later") == [b"x"]


def test_a_publish_that_is_wrong_is_refused_when_it_comes() -> None:
    wire = transactional(Wire().open())
    wire.publish(1, "none", "q", b"x")
    assert close_of(wire.take_one())[0] == NOT_FOUND


def test_an_exchange_that_is_gone_at_the_commit_refuses_it() -> None:
    wire = Wire().open(channels=2)
    wire.declare("q")
    wire.ask(1, spec.ExchangeDeclare(0, "e", "fanout"))
    transactional(wire)
    wire.publish(1, "", "q", b"x")
    wire.publish(1, "e", "", b"x")
    wire.ask(2, spec.ExchangeDelete(0, "e"))
    assert close_of(wire.ask(1, spec.TxCommit()))[0] == NOT_FOUND
    assert bodies(wire) == []


def test_names_that_are_not_loaded_are_loaded_at_the_commit() -> None:
    wire = Wire().open()
    wire.declare("q")
    transactional(wire)
    wire.publish(1, "", "q", b"x")
    wire.declare("other")  # forgets what was found
    wire.client.unloaded.add("q")
    assert wire.ask(1, spec.TxCommit()) == spec.TxCommitOk()
    assert bodies(wire) == [b"x"]


# --- Settlements ----------------------------------------------------------------------------


def test_settlements_take_effect_at_the_commit() -> None:
    wire = consuming(6)
    wire.take()
    transactional(wire)
    wire.send(1, spec.BasicAck(2, multiple=True), spec.BasicReject(3, requeue=False))
    wire.send(1, spec.BasicNack(4, multiple=False, requeue=True), spec.BasicAck(6))
    assert queue(wire).settled == []
    wire.send(1, spec.TxCommit())
    answers = wire.take_methods()
    assert spec.TxCommitOk() in answers
    again = [each for each in answers if isinstance(each, spec.BasicDeliver)]
    assert [(each.delivery_tag, each.redelivered) for each in again] == [(7, True)]
    assert [(how, offsets) for how, offsets, _ in queue(wire).settled] == [
        (Settlement.ACK, [0, 1, 5]),
        (Settlement.DEAD_LETTER, [2]),
        (Settlement.RELEASE, [3]),
    ]
    assert list(wire.connection.channels[1].unacked) == [5, 7]


def test_an_ack_in_a_transaction_takes_the_tag_off_at_once() -> None:
    wire = consuming(1)
    wire.take()
    transactional(wire)
    wire.send(1, spec.BasicAck(1))
    code, text = close_of(wire.ask(1, spec.BasicAck(1)))
    assert (code, "unknown delivery tag 1" in text) == (PRECONDITION_FAILED, True)
    # The channel's end rolls back: the message is given back.
    assert [how for how, _, _ in queue(wire).settled] == [Settlement.RELEASE]


def test_rolled_back_deliveries_stay_with_the_client_in_their_order() -> None:
    wire = consuming(4)
    wire.take()
    transactional(wire)
    wire.send(1, spec.BasicAck(3), spec.BasicAck(1))
    assert wire.ask(1, spec.TxRollback()) == spec.TxRollbackOk()
    assert list(wire.connection.channels[1].unacked) == [1, 2, 3, 4]
    wire.send(1, spec.BasicAck(4, multiple=True))
    assert wire.ask(1, spec.TxCommit()) == spec.TxCommitOk()
    assert queue(wire).settled == [(Settlement.ACK, [0, 1, 2, 3], queue(wire).settled[0][2])]


@pytest.mark.parametrize("is_global", [False, True])
def test_what_is_acked_and_not_committed_counts_towards_the_prefetch(is_global: bool) -> None:
    wire = Wire().open()
    wire.declare("q")
    fill(wire, 4)
    wire.ask(1, spec.BasicQos(0, 2, global_=is_global))
    transactional(wire)
    wire.send(1, spec.BasicConsume(0, "q", "c"))
    assert [each.delivery_tag for each in deliveries(wire)] == [1, 2]
    wire.send(1, spec.BasicAck(2, multiple=True))
    assert deliveries(wire) == []
    wire.send(1, spec.TxCommit())
    assert [each.delivery_tag for each in deliveries(wire)] == [3, 4]


def test_closing_the_channel_rolls_back() -> None:
    wire = consuming(3)
    wire.take()
    transactional(wire)
    wire.send(1, spec.BasicAck(2))
    wire.publish(1, "", "q", b"never")
    wire.send(1, spec.ChannelClose(200, "", 0, 0))
    assert sorted(queue(wire).settled[0][1]) == [0, 1, 2]
    assert len(bodies(wire)) == 3


def test_losing_the_connection_leaves_nothing_of_a_transaction() -> None:
    wire = consuming(2)
    wire.send(1, spec.TxSelect(), spec.BasicAck(1))
    wire.publish(1, "", "q", b"never")
    wire.connection.lost()
    assert (queue(wire).settled, queue(wire).ready) == ([], [0, 1])
    assert len(bodies(wire)) == 2


# --- Errors and bounds ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Code.NO_SPACE, PRECONDITION_FAILED),
        (Code.REJECTED, PRECONDITION_FAILED),
        (Code.NOT_FOUND, PRECONDITION_FAILED),
        (Code.TIMEOUT, INTERNAL_ERROR),
    ],
)
def test_a_commit_that_fails_is_told_and_gives_the_deliveries_back(error: Code, code: int) -> None:
    wire = consuming(1)
    wire.take()
    transactional(wire)
    wire.send(1, spec.BasicAck(1))
    wire.publish(1, "", "q", b"x")
    wire.client.refusal = KernelError(error, "so it is")
    got, text = close_of(wire.ask(1, spec.TxCommit()))
    assert (got, text.endswith("not committed as a whole: so it is")) == (code, True)
    assert (queue(wire).held, len(bodies(wire))) == ({}, 1)


def test_the_kernels_transaction_need_not_be_whole() -> None:
    wire = Wire().open()
    wire.declare("q")
    transactional(wire)
    wire.publish(1, "", "q", b"x")
    wire.ask(1, spec.TxCommit())
    assert [each.whole for each in wire.client.transacted] == [False]


def test_too_many_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.amqp.channel.transaction.TRANSACTION_MESSAGES_MAX", 2)
    wire = Wire().open()
    wire.declare("q")
    transactional(wire)
    wire.publish(1, "", "q", b"1")
    wire.publish(1, "", "q", b"2")
    assert wire.take() == []
    wire.publish(1, "", "q", b"3")
    code, text = close_of(wire.take_one())
    assert (code, "publishes 2 messages at most: commit more often" in text) == (
        PRECONDITION_FAILED,
        True,
    )


def test_too_many_bytes_on_all_channels_of_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.amqp.channel.transaction.TRANSACTION_BYTES_MAX", 1_000)
    wire = Wire().open(channels=2)
    wire.declare("q")
    wire.send(1, spec.TxSelect())
    wire.send(2, spec.TxSelect())
    wire.take()
    wire.publish(1, "", "q", b"x" * 600)
    wire.publish(2, "", "q", b"x" * 600)
    code, text = close_of(wire.take_one())
    assert (code, "holds 1000 bytes" in text) == (PRECONDITION_FAILED, True)
    wire.send(2, spec.ChannelCloseOk(), spec.ChannelOpen(), spec.TxSelect())
    wire.send(1, spec.TxCommit())
    wire.take()
    wire.publish(2, "", "q", b"x" * 600)  # there is room again
    assert wire.take() == []


def test_too_many_deliveries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.amqp.channel.transaction.TRANSACTION_DELIVERIES_MAX", 2)
    wire = consuming(3)
    wire.take()
    transactional(wire)
    wire.send(1, spec.BasicAck(2, multiple=True))
    code, text = close_of(wire.ask(1, spec.BasicAck(3)))
    assert (code, "settles 2 deliveries" in text) == (PRECONDITION_FAILED, True)
    assert sorted(queue(wire).settled[0][1]) == [0, 1, 2]  # given back


def test_what_a_transaction_may_hold_fits_into_one_of_the_kernels() -> None:
    assert limits.TRANSACTION_MESSAGES_MAX <= atomic.TRANSACTION_MESSAGES_MAX
    named = limits.TRANSACTION_MESSAGES_MAX * limits.SHORT_STRING_BYTES_MAX
    assert limits.TRANSACTION_BYTES_MAX + named <= atomic.TRANSACTION_BYTES_MAX
    assert limits.TRANSACTION_DELIVERIES_MAX <= atomic.TRANSACTION_PARTS_MAX
    assert limits.TRANSACTION_DELIVERIES_MAX <= atomic.TRANSACTION_SETTLEMENTS_MAX
