"""Inbound publishes of a client: aliases, flow control, repeats, and acknowledgements in order.

Commits finish out of order, because messages go to several groups; acknowledgements leave in the
order in which the messages came. A ring does that: each message that wants an answer gets the next
token, its answer waits in the ring as one integer, and answers leave from the head as far as they
are complete.

    words    | PUBACK 7 | PUBACK 8 | PUBREC 9 | PUBACK 10 |
    results             | ok       |          | ok        |      7 holds back 8; 9 holds back 10
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from adapters.mqtt.codec.encoder import (
    PUBACK_WORD,
    PUBCOMP_WORD,
    PUBREC_WORD,
    encode_words,
)
from adapters.mqtt.codec.errors import LocalProtocolError, MqttError, protocol_error
from adapters.mqtt.codec.packet_types import MQTT_5, QOS_BITS, PacketType
from adapters.mqtt.codec.packets import PublishRun
from adapters.mqtt.codec.properties import parse_publish_properties
from adapters.mqtt.codec.reason_codes import FAILURE, ReasonCode
from adapters.mqtt.session.states import ON_INCOMING, Incoming, IncomingAction, IncomingInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from adapters.mqtt.config import SessionConfig
    from adapters.mqtt.session.send_buffer import SendBuffer

_QOS_2: Final = 0x04
# Looked up once: a member looked up in its Enum costs 0.1 microseconds (CPython 3.11).
_UNKNOWN: Final = Incoming.UNKNOWN
_RELEASING: Final = Incoming.RELEASING
_STORE: Final = IncomingAction.STORE
_SEND_PUBREC: Final = IncomingAction.SEND_PUBREC
_RECORD_RELEASE: Final = IncomingAction.RECORD_RELEASE
_ON_PUBLISH: Final = IncomingInput.PUBLISH
_ON_PUBREL: Final = IncomingInput.PUBREL
_ON_COMMITTED: Final = IncomingInput.COMMITTED
_ON_REFUSED: Final = IncomingInput.REFUSED
_PUBREC_TYPE: Final = PUBREC_WORD >> 28


class Inbound:
    """The publishing half of one accepted connection."""

    __slots__ = (
        "_aliases",
        "_config",
        "_exactly_once",
        "_head",
        "_results",
        "_send_buffer",
        "_words",
        "unacknowledged",
    )

    def __init__(self, config: SessionConfig, send_buffer: SendBuffer) -> None:
        self._config = config
        self._send_buffer = send_buffer
        self._aliases: dict[int, str] = {}
        # Packet identifier -> state, of QoS 2 messages whose exchange is not over.
        self._exactly_once: dict[int, Incoming] = {}
        self._head = 1
        self._words: list[int] = []
        # Token -> reason code and reason string, of what is finished behind an unfinished one.
        self._results: dict[int, tuple[int, str]] = {}
        # Messages of this connection whose exchange is not over: what Receive Maximum counts.
        self.unacknowledged = 0

    @property
    def answers_due(self) -> int:
        """How many messages wait for an answer from us; what a client may be slowed down for."""
        return len(self._words)

    def restore(self, packet_ids: Iterable[int]) -> None:
        """Takes over the QoS 2 identifiers that an earlier connection of the session received.

        Whether their messages are stored only the driver can know: a repeat is given to it once
        more, and it must not store it twice.
        """
        for packet_id in packet_ids:
            self._exactly_once[packet_id] = Incoming.NOTED

    def received_ids(self) -> list[int]:
        """The QoS 2 identifiers that the session must remember."""
        kept = (Incoming.STORED, Incoming.RELEASING, Incoming.NOTED)
        return [id_ for id_, state in self._exactly_once.items() if state in kept]

    # -----------------------------------------------------------------------------------------
    # Messages

    def admit(self, run: PublishRun) -> PublishRun | None:
        """The messages of `run` that are to be stored, with tokens; None if there are none.

        Raises MqttError: 0x94 and 0x82 for aliases, 0x93 over Receive Maximum, 0x99 for a payload
        that is not what it claims, 0x9B and 0x9A for what this server does not offer.
        """
        if not run.topics:
            # Its first packet was malformed.
            return None
        if run.aliases:
            self._resolve_aliases(run)
        if self._config.maximum_qos < 2 or not self._config.retain_available:
            self._check_capabilities(run)
        if self._config.validate_payload_format:
            _check_payload_format(run)
        if run.exactly_once:
            kept = self._without_repeats(run)
            if not kept:
                return None
            if len(kept) < len(run):
                run = _selected(run, kept)
        self._give_tokens(run)
        return run

    def _resolve_aliases(self, run: PublishRun) -> None:
        for index, alias in run.aliases.items():
            if alias > self._config.topic_alias_maximum:
                raise MqttError(
                    ReasonCode.TOPIC_ALIAS_INVALID,
                    f"topic alias {alias} is over {self._config.topic_alias_maximum}",
                )
            if run.topics[index]:
                self._aliases[alias] = run.topics[index]
            elif alias in self._aliases:
                run.topics[index] = self._aliases[alias]
            else:
                raise protocol_error(f"topic alias {alias} was never set")

    def _check_capabilities(self, run: PublishRun) -> None:
        for flags in run.flags:
            if (flags & QOS_BITS) >> 1 > self._config.maximum_qos:
                raise MqttError(ReasonCode.QOS_NOT_SUPPORTED, "a PUBLISH of too high a QoS")
            if flags & 1 and not self._config.retain_available:
                raise MqttError(ReasonCode.RETAIN_NOT_SUPPORTED, "a retained PUBLISH")

    def _without_repeats(self, run: PublishRun) -> list[int]:
        """The positions that are not repeats of a QoS 2 message that we have.

        A repeat is answered at once: its PUBREC has been given before, so it passes nobody.
        """
        kept: list[int] = []
        for index, flags in enumerate(run.flags):
            if not flags & _QOS_2:
                kept.append(index)
                continue
            packet_id = run.packet_ids[index]
            action = self._step(packet_id, _ON_PUBLISH)
            if action is _STORE:
                kept.append(index)
            elif action is _SEND_PUBREC:
                self._send_buffer.parts.append(encode_words((PUBREC_WORD | packet_id,)))
        return kept

    def _give_tokens(self, run: PublishRun) -> None:
        ids = run.packet_ids
        first = self._head + len(self._words)
        unanswered = ids.count(0)
        count = len(ids) - unanswered
        if self.unacknowledged + count > self._config.receive_maximum and self._enforces:
            raise MqttError(
                ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
                f"more than {self._config.receive_maximum} messages are unacknowledged",
            )
        self.unacknowledged += count
        if run.exactly_once:
            for packet_id, flags in zip(ids, run.flags, strict=True):
                if packet_id:
                    word = PUBREC_WORD if flags & _QOS_2 else PUBACK_WORD
                    self._words.append(word | packet_id)
        elif count:
            self._words.extend([PUBACK_WORD | packet_id for packet_id in ids if packet_id])
        if not unanswered:
            run.tokens = range(first, first + count)
        elif not count:
            run.tokens = ids
        else:
            tokens = iter(range(first, first + count))
            run.tokens = [next(tokens) if packet_id else 0 for packet_id in ids]

    @property
    def _enforces(self) -> bool:
        return self._config.enforce_receive_maximum and self._send_buffer.level == MQTT_5

    # -----------------------------------------------------------------------------------------
    # Answers

    def committed(self, tokens: Sequence[int], code: int, reason_string: str) -> None:
        """The messages of `tokens` (ascending) are stored, or refused with `code` >= 0x80.

        Raises MqttError if an MQTT 3.1.1 client must be disconnected, because it cannot be told.
        """
        if not tokens:
            return
        head, end = self._head, self._head + len(self._words)
        if tokens[0] < head or tokens[-1] >= end:
            raise LocalProtocolError("a token was never given or is answered already")
        if code >= FAILURE and self._send_buffer.level != MQTT_5:
            self._check_v3_refusal(code)
        if tokens[0] == head and not self._results and tokens[-1] - head == len(tokens) - 1:
            # All of the oldest, in order: what nearly always happens.
            self._answer(self._taken(len(tokens)), code, reason_string)
            return
        result = (code, reason_string)
        for token in tokens:
            self._results[token] = result
        self._answer_from_head()

    def _answer_from_head(self) -> None:
        """Gives the answers that are complete at the head of the ring, equal ones together."""
        count = 0
        equal: tuple[int, str] = (0, "")
        while (result := self._results.pop(self._head + count, None)) is not None:
            if count and result != equal:
                self._answer(self._taken(count), *equal)
                count = 0
            equal = result
            count += 1
        if count:
            self._answer(self._taken(count), *equal)

    def _taken(self, count: int) -> list[int]:
        """The oldest `count` words, taken out of the ring."""
        words = self._words[:count]
        del self._words[:count]
        self._head += count
        return words

    def _check_v3_refusal(self, code: int) -> None:
        denied = code == ReasonCode.NOT_AUTHORIZED
        if not (denied and self._config.acknowledge_unauthorized_v3):
            raise MqttError(ReasonCode(code), "a message was refused")

    def _answer(self, words: list[int], code: int, reason_string: str) -> None:
        plain = not (code or reason_string) or self._send_buffer.level != MQTT_5
        if plain and not self._send_buffer.closed:
            self._send_buffer.parts.append(encode_words(words))
        for word in words if self._exactly_once or not plain else ():
            packet_id = word & 0xFFFF
            if not plain:
                packet_type = PacketType(word >> 28)
                self._send_buffer.acknowledge(packet_type, packet_id, code, reason_string)
            if word >> 28 == _PUBREC_TYPE:
                refused = code >= FAILURE and not plain
                result = _ON_REFUSED if refused else _ON_COMMITTED
                if self._step(packet_id, result) is _SEND_PUBREC:
                    # The exchange goes on until PUBCOMP.
                    self.unacknowledged += 1
        self.unacknowledged -= len(words)

    def release(self, packet_ids: Iterable[int]) -> list[int]:
        """PUBREL came. Returns the identifiers whose release is to be recorded."""
        to_record: list[int] = []
        for packet_id in packet_ids:
            action = self._step(packet_id, _ON_PUBREL)
            if action is _RECORD_RELEASE:
                to_record.append(packet_id)
            elif action is IncomingAction.SEND_PUBCOMP_NOT_FOUND:
                self._send_buffer.acknowledge(
                    PacketType.PUBCOMP, packet_id, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
                )
        return to_record

    def released(self, packet_ids: Sequence[int]) -> None:
        """The release is on record: PUBCOMP ([MQTT-4.3.3-11])."""
        for packet_id in packet_ids:
            if self._exactly_once.get(packet_id) is not _RELEASING:
                raise LocalProtocolError(f"packet identifier {packet_id} is not being released")
            self._step(packet_id, _ON_COMMITTED)
        if packet_ids and not self._send_buffer.closed:
            words = [PUBCOMP_WORD | packet_id for packet_id in packet_ids]
            self._send_buffer.parts.append(encode_words(words))
        # A message that an earlier connection sent was not counted on this one.
        self.unacknowledged = max(0, self.unacknowledged - len(packet_ids))

    def _step(self, packet_id: int, what: IncomingInput) -> IncomingAction:
        state = self._exactly_once.get(packet_id, _UNKNOWN)
        row = ON_INCOMING.get((state, what))
        if row is None:
            raise protocol_error(f"{what.name} for packet identifier {packet_id} is out of order")
        after, action = row
        if after is _UNKNOWN:
            self._exactly_once.pop(packet_id, None)
        else:
            self._exactly_once[packet_id] = after
        return action


def _check_payload_format(run: PublishRun) -> None:
    for block, payload in zip(run.properties, run.payloads, strict=True):
        if block and parse_publish_properties(block).payload_format_indicator:
            try:
                payload.decode()
            except UnicodeDecodeError as error:
                raise MqttError(
                    ReasonCode.PAYLOAD_FORMAT_INVALID, "a payload is not the UTF-8 that it claims"
                ) from error


def _selected(run: PublishRun, kept: list[int]) -> PublishRun:
    """The run of the packets at the positions `kept`; its aliases are resolved by now."""
    moved = {old: new for new, old in enumerate(kept)}
    return PublishRun(
        topics=[run.topics[index] for index in kept],
        payloads=[run.payloads[index] for index in kept],
        flags=[run.flags[index] for index in kept],
        packet_ids=[run.packet_ids[index] for index in kept],
        properties=[run.properties[index] for index in kept],
        expiries={moved[index]: s for index, s in run.expiries.items() if index in moved},
        exactly_once=run.exactly_once,
    )
