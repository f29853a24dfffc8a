"""The tables of the two state machines: which method is legal in which state.

A connection (AMQP 0-9-1 section 2.2.4)::

    HEADER --protocol header--> START --start-ok--> TUNE --tune-ok--> OPENING --open--> OPEN
       |                          |                                                      |
       +--anything else--> GONE   +--login refused--> REFUSED --after a pause--> GONE    |
                                                                                         |
    any state, close received: answer close-ok, then GONE                                |
    any state from START, an error of ours: send close, then CLOSING <-------------------+
    CLOSING: everything is ignored but close (answer close-ok) and close-ok, then GONE

A channel (section 2.3.2)::

    (absent) --open--> OPEN --close received: close-ok--> (absent)
                        |
                        +--soft error: send close--> CLOSING --close-ok--> (absent)
    CLOSING: everything is ignored but close (answer close-ok) and close-ok

What is not in a table is refused: by 503 COMMAND_INVALID where the method cannot come from a client
at all or not in this state, by 504 CHANNEL_ERROR where the channel is the wrong one or in the wrong
state. What an open channel allows in its mode (confirm, tx) is the table of `transaction`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from adapters.amqp.codec import spec
from adapters.amqp.errors import CHANNEL_ERROR, COMMAND_INVALID, AmqpError

if TYPE_CHECKING:
    from adapters.amqp.codec.method_base import Method


class ConnectionState(Enum):
    """States of a connection; see the drawing above."""

    HEADER = auto()
    START = auto()
    TUNE = auto()
    OPENING = auto()
    OPEN = auto()
    REFUSED = auto()
    CLOSING = auto()
    GONE = auto()


class ChannelState(Enum):
    """States of a channel that exists."""

    OPEN = auto()
    CLOSING = auto()


@dataclass(frozen=True, slots=True)
class Step:
    """How a method is carried out: by the method of `Connection` or `ChannelMethods` so named.

    `waits`: it awaits the kernel; the connection's later frames wait for it. `fenced`: it starts
    only when everything published and given back on the connection before it is done, since its
    answer depends on that.
    """

    handler: str
    waits: bool = False
    fenced: bool = False


_CLOSE: Final = {
    spec.ConnectionClose.key: Step("on_close"),
    spec.ConnectionCloseOk.key: Step("on_close_ok"),
}

CONNECTION_STEPS: Final[dict[ConnectionState, dict[int, Step]]] = {
    ConnectionState.START: {
        spec.ConnectionStartOk.key: Step("on_start_ok", waits=True),
        **_CLOSE,
    },
    ConnectionState.TUNE: {spec.ConnectionTuneOk.key: Step("on_tune_ok"), **_CLOSE},
    ConnectionState.OPENING: {spec.ConnectionOpen.key: Step("on_open"), **_CLOSE},
    ConnectionState.OPEN: {
        spec.ConnectionUpdateSecret.key: Step("on_update_secret", waits=True),
        **_CLOSE,
    },
    ConnectionState.CLOSING: dict(_CLOSE),
}

CHANNEL_STEPS: Final[dict[int, Step]] = {
    spec.ChannelFlow.key: Step("on_flow"),
    spec.ChannelClose.key: Step("on_channel_close"),
    spec.AccessRequest.key: Step("on_access_request"),
    spec.ExchangeDeclare.key: Step("on_exchange_declare", waits=True),
    spec.ExchangeDelete.key: Step("on_exchange_delete", waits=True),
    spec.ExchangeBind.key: Step("on_exchange_bind", waits=True),
    spec.ExchangeUnbind.key: Step("on_exchange_bind", waits=True),
    spec.QueueDeclare.key: Step("on_queue_declare", waits=True, fenced=True),
    spec.QueueBind.key: Step("on_queue_bind", waits=True),
    spec.QueueUnbind.key: Step("on_queue_bind", waits=True),
    spec.QueuePurge.key: Step("on_queue_purge", waits=True, fenced=True),
    spec.QueueDelete.key: Step("on_queue_delete", waits=True, fenced=True),
    spec.BasicQos.key: Step("on_qos"),
    spec.BasicConsume.key: Step("on_consume", waits=True),
    spec.BasicCancel.key: Step("on_cancel"),
    spec.BasicCancelOk.key: Step("on_cancel_ok"),
    spec.BasicPublish.key: Step("on_publish"),
    spec.BasicGet.key: Step("on_get", waits=True, fenced=True),
    spec.BasicAck.key: Step("on_ack"),
    spec.BasicReject.key: Step("on_reject"),
    spec.BasicNack.key: Step("on_nack"),
    spec.BasicRecover.key: Step("on_recover"),
    spec.BasicRecoverAsync.key: Step("on_recover"),
    spec.ConfirmSelect.key: Step("on_confirm_select"),
    spec.TxSelect.key: Step("on_tx_select"),
    spec.TxCommit.key: Step("on_tx_commit", waits=True, fenced=True),
    spec.TxRollback.key: Step("on_tx_rollback"),
}
"""Methods of an open channel."""


def connection_step(state: ConnectionState, method: type[Method]) -> Step | None:
    """What to do with a method on channel 0; None: ignore it (CLOSING). Raises AmqpError."""
    step = CONNECTION_STEPS.get(state, {}).get(method.key)
    if step is not None or state in (ConnectionState.CLOSING, ConnectionState.REFUSED):
        return step
    if method.class_id != spec.ConnectionStart.class_id:
        raise AmqpError(CHANNEL_ERROR, f"{method.wire_name} on channel 0")
    raise AmqpError(COMMAND_INVALID, f"{method.wire_name} is not expected in state {state.name}")


def channel_step(state: ChannelState | None, method: type[Method]) -> Step | None:
    """What to do with a method on a channel in `state` (None: the channel does not exist).

    None: ignore it. Raises AmqpError.
    """
    if method.class_id == spec.ConnectionStart.class_id:
        raise AmqpError(COMMAND_INVALID, f"{method.wire_name} on a channel other than 0")
    if state is ChannelState.CLOSING:
        return {
            spec.ChannelClose.key: Step("on_channel_close"),
            spec.ChannelCloseOk.key: Step("on_channel_close_ok"),
        }.get(method.key)
    is_open = method is spec.ChannelOpen
    if state is None:
        if is_open:
            return Step("on_channel_open")
        raise AmqpError(CHANNEL_ERROR, f"expected 'channel.open', got {method.wire_name}")
    if is_open:
        raise AmqpError(CHANNEL_ERROR, "second 'channel.open' seen")
    step = CHANNEL_STEPS.get(method.key)
    if step is None:
        raise AmqpError(COMMAND_INVALID, f"{method.wire_name} is not for clients to send")
    return step
