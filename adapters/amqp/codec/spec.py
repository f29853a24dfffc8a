"""The methods of AMQP 0-9-1 and RabbitMQ's additions, as one table.

Every class below is one method: the decorator gives class id, method id and name, the annotations
give the arguments in wire order (`method_base.py` says how), and `methods.py` compiles both into a
codec. Arguments called `reserved_n` carry nothing; `ticket` is reserved too, clients still send it.

The order is that of the specification: connection 10, channel 20, access 30, exchange 40,
queue 50, basic 60, confirm 85, tx 90. `connection.blocked`, `unblocked`, `update-secret`,
`basic.nack`, `exchange.bind`, `exchange.unbind` and `confirm` are RabbitMQ's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from adapters.amqp.codec.fields import EMPTY_TABLE, Table
from adapters.amqp.codec.method_base import (
    METHODS,
    Bit,
    Long,
    LongLong,
    LongStr,
    Method,
    Octet,
    Short,
    ShortStr,
    method,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


@method(10, 10, "connection.start")
class ConnectionStart(Method):
    version_major: Octet
    version_minor: Octet
    server_properties: Table
    mechanisms: LongStr
    locales: LongStr


@method(10, 11, "connection.start-ok")
class ConnectionStartOk(Method):
    client_properties: Table
    mechanism: ShortStr
    response: LongStr
    locale: ShortStr


@method(10, 20, "connection.secure")
class ConnectionSecure(Method):
    challenge: LongStr


@method(10, 21, "connection.secure-ok")
class ConnectionSecureOk(Method):
    response: LongStr


@method(10, 30, "connection.tune")
class ConnectionTune(Method):
    channel_max: Short
    frame_max: Long
    heartbeat: Short


@method(10, 31, "connection.tune-ok")
class ConnectionTuneOk(Method):
    channel_max: Short
    frame_max: Long
    heartbeat: Short


@method(10, 40, "connection.open")
class ConnectionOpen(Method):
    virtual_host: ShortStr
    reserved_1: ShortStr = ""
    reserved_2: Bit = False


@method(10, 41, "connection.open-ok")
class ConnectionOpenOk(Method):
    reserved_1: ShortStr = ""


@method(10, 50, "connection.close")
class ConnectionClose(Method):
    reply_code: Short
    reply_text: ShortStr
    failing_class: Short
    failing_method: Short


@method(10, 51, "connection.close-ok")
class ConnectionCloseOk(Method):
    pass


@method(10, 60, "connection.blocked")
class ConnectionBlocked(Method):
    reason: ShortStr


@method(10, 61, "connection.unblocked")
class ConnectionUnblocked(Method):
    pass


@method(10, 70, "connection.update-secret")
class ConnectionUpdateSecret(Method):
    new_secret: LongStr
    reason: ShortStr


@method(10, 71, "connection.update-secret-ok")
class ConnectionUpdateSecretOk(Method):
    pass


@method(20, 10, "channel.open")
class ChannelOpen(Method):
    reserved_1: ShortStr = ""


@method(20, 11, "channel.open-ok")
class ChannelOpenOk(Method):
    reserved_1: LongStr = b""


@method(20, 20, "channel.flow")
class ChannelFlow(Method):
    active: Bit


@method(20, 21, "channel.flow-ok")
class ChannelFlowOk(Method):
    active: Bit


@method(20, 40, "channel.close")
class ChannelClose(Method):
    reply_code: Short
    reply_text: ShortStr
    failing_class: Short
    failing_method: Short


@method(20, 41, "channel.close-ok")
class ChannelCloseOk(Method):
    pass


@method(30, 10, "access.request")
class AccessRequest(Method):
    realm: ShortStr
    exclusive: Bit
    passive: Bit
    active: Bit
    write: Bit
    read: Bit


@method(30, 11, "access.request-ok")
class AccessRequestOk(Method):
    ticket: Short


@method(40, 10, "exchange.declare")
class ExchangeDeclare(Method):
    ticket: Short
    exchange: ShortStr
    type: ShortStr
    passive: Bit = False
    durable: Bit = False
    auto_delete: Bit = False
    internal: Bit = False
    nowait: Bit = False
    arguments: Table = EMPTY_TABLE


@method(40, 11, "exchange.declare-ok")
class ExchangeDeclareOk(Method):
    pass


@method(40, 20, "exchange.delete")
class ExchangeDelete(Method):
    ticket: Short
    exchange: ShortStr
    if_unused: Bit = False
    nowait: Bit = False


@method(40, 21, "exchange.delete-ok")
class ExchangeDeleteOk(Method):
    pass


@method(40, 30, "exchange.bind")
class ExchangeBind(Method):
    ticket: Short
    destination: ShortStr
    source: ShortStr
    routing_key: ShortStr
    nowait: Bit = False
    arguments: Table = EMPTY_TABLE


@method(40, 31, "exchange.bind-ok")
class ExchangeBindOk(Method):
    pass


@method(40, 40, "exchange.unbind")
class ExchangeUnbind(Method):
    ticket: Short
    destination: ShortStr
    source: ShortStr
    routing_key: ShortStr
    nowait: Bit = False
    arguments: Table = EMPTY_TABLE


# 51, not 41: RabbitMQ numbered it after queue.unbind-ok.
@method(40, 51, "exchange.unbind-ok")
class ExchangeUnbindOk(Method):
    pass


@method(50, 10, "queue.declare")
class QueueDeclare(Method):
    ticket: Short
    queue: ShortStr
    passive: Bit = False
    durable: Bit = False
    exclusive: Bit = False
    auto_delete: Bit = False
    nowait: Bit = False
    arguments: Table = EMPTY_TABLE


@method(50, 11, "queue.declare-ok")
class QueueDeclareOk(Method):
    queue: ShortStr
    message_count: Long
    consumer_count: Long


@method(50, 20, "queue.bind")
class QueueBind(Method):
    ticket: Short
    queue: ShortStr
    exchange: ShortStr
    routing_key: ShortStr
    nowait: Bit = False
    arguments: Table = EMPTY_TABLE


@method(50, 21, "queue.bind-ok")
class QueueBindOk(Method):
    pass


@method(50, 30, "queue.purge")
class QueuePurge(Method):
    ticket: Short
    queue: ShortStr
    nowait: Bit = False


@method(50, 31, "queue.purge-ok")
class QueuePurgeOk(Method):
    message_count: Long


@method(50, 40, "queue.delete")
class QueueDelete(Method):
    ticket: Short
    queue: ShortStr
    if_unused: Bit = False
    if_empty: Bit = False
    nowait: Bit = False


@method(50, 41, "queue.delete-ok")
class QueueDeleteOk(Method):
    message_count: Long


@method(50, 50, "queue.unbind")
class QueueUnbind(Method):
    ticket: Short
    queue: ShortStr
    exchange: ShortStr
    routing_key: ShortStr
    arguments: Table = EMPTY_TABLE


@method(50, 51, "queue.unbind-ok")
class QueueUnbindOk(Method):
    pass


@method(60, 10, "basic.qos")
class BasicQos(Method):
    prefetch_size: Long
    prefetch_count: Short
    global_: Bit


@method(60, 11, "basic.qos-ok")
class BasicQosOk(Method):
    pass


@method(60, 20, "basic.consume")
class BasicConsume(Method):
    ticket: Short
    queue: ShortStr
    consumer_tag: ShortStr
    no_local: Bit = False
    no_ack: Bit = False
    exclusive: Bit = False
    nowait: Bit = False
    arguments: Table = EMPTY_TABLE


@method(60, 21, "basic.consume-ok")
class BasicConsumeOk(Method):
    consumer_tag: ShortStr


@method(60, 30, "basic.cancel")
class BasicCancel(Method):
    consumer_tag: ShortStr
    nowait: Bit = False


@method(60, 31, "basic.cancel-ok")
class BasicCancelOk(Method):
    consumer_tag: ShortStr


@method(60, 40, "basic.publish")
class BasicPublish(Method):
    ticket: Short
    exchange: ShortStr
    routing_key: ShortStr
    mandatory: Bit = False
    immediate: Bit = False


@method(60, 50, "basic.return")
class BasicReturn(Method):
    reply_code: Short
    reply_text: ShortStr
    exchange: ShortStr
    routing_key: ShortStr


@method(60, 60, "basic.deliver")
class BasicDeliver(Method):
    consumer_tag: ShortStr
    delivery_tag: LongLong
    redelivered: Bit
    exchange: ShortStr
    routing_key: ShortStr


@method(60, 70, "basic.get")
class BasicGet(Method):
    ticket: Short
    queue: ShortStr
    no_ack: Bit = False


@method(60, 71, "basic.get-ok")
class BasicGetOk(Method):
    delivery_tag: LongLong
    redelivered: Bit
    exchange: ShortStr
    routing_key: ShortStr
    message_count: Long


@method(60, 72, "basic.get-empty")
class BasicGetEmpty(Method):
    reserved_1: ShortStr = ""


@method(60, 80, "basic.ack")
class BasicAck(Method):
    delivery_tag: LongLong
    multiple: Bit = False


@method(60, 90, "basic.reject")
class BasicReject(Method):
    delivery_tag: LongLong
    requeue: Bit = True


@method(60, 100, "basic.recover-async")
class BasicRecoverAsync(Method):
    requeue: Bit


@method(60, 110, "basic.recover")
class BasicRecover(Method):
    requeue: Bit


@method(60, 111, "basic.recover-ok")
class BasicRecoverOk(Method):
    pass


@method(60, 120, "basic.nack")
class BasicNack(Method):
    delivery_tag: LongLong
    multiple: Bit = False
    requeue: Bit = True


@method(85, 10, "confirm.select")
class ConfirmSelect(Method):
    nowait: Bit = False


@method(85, 11, "confirm.select-ok")
class ConfirmSelectOk(Method):
    pass


@method(90, 10, "tx.select")
class TxSelect(Method):
    pass


@method(90, 11, "tx.select-ok")
class TxSelectOk(Method):
    pass


@method(90, 20, "tx.commit")
class TxCommit(Method):
    pass


@method(90, 21, "tx.commit-ok")
class TxCommitOk(Method):
    pass


@method(90, 30, "tx.rollback")
class TxRollback(Method):
    pass


@method(90, 31, "tx.rollback-ok")
class TxRollbackOk(Method):
    pass


METHOD_TABLE: Final[Mapping[int, type[Method]]] = METHODS
"""Every method of this file by its key."""
