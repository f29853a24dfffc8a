"""The publisher of a connection: what its client publishes, on its way into the kernel.

The messages of one chunk are one batch; each goes to the destinations of its name. They are
answered when the batch is on disk: PUBACK, or PUBREC of a session that ends with its connection.

A QoS 2 message of a session that outlives the connection takes two steps, each on disk before the
next: a note that its packet identifier has come, with the number under which it is stored; then the
message, at most once under that number. So a repeat over another connection, which cannot know how
far the first got, is stored under the same number again, and is there once. PUBREL removes the
note.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from adapters.mqtt.access.refusals import reason_of
from adapters.mqtt.codec.packet_types import MQTT_5, QOS_BITS, RETAIN_BIT
from adapters.mqtt.codec.reason_codes import ReasonCode
from adapters.mqtt.delivery import notes
from adapters.mqtt.delivery.system_topics import state_of
from adapters.mqtt.messages.stored import head_of, ttl_of
from auth.policies.policy_rules import Action, ResourceKind, permission
from kernel.api.message import HEADER_BYTES
from kernel.common.errors import Code, KernelError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from adapters.base import Rights
    from adapters.limiting import Charging
    from adapters.mqtt.codec.packets import PublishRun
    from adapters.mqtt.environment import Environment
    from adapters.mqtt.host import MqttHost
    from adapters.mqtt.session.client_session import Session
    from adapters.mqtt.session.events import ConnectionClosed, PublishesReleased
    from kernel.api.client import Destinations, PublishBatch
    from kernel.api.client import Session as KernelSession
    from kernel.api.tree import Subscriber
    from kernel.common.ids import TopicId
    from kernel.quotas.account import Account

PUBLISH_TREE: Final = permission(Action.PUBLISH, ResourceKind.TREE)
_QOS_2: Final = 0x04
_SEQUENCE_SHIFT: Final = 32

_NOBODY: Final = int(ReasonCode.NO_MATCHING_SUBSCRIBERS)
_NOT_AUTHORIZED: Final = int(ReasonCode.NOT_AUTHORIZED)

# What may have been stored all the same: a repeat must keep its number.
_UNCERTAIN: Final = frozenset(
    {Code.TIMEOUT, Code.UNKNOWN_OUTCOME, Code.NOT_LEADER, Code.UNAVAILABLE}
)


class _Single(NamedTuple):
    """A QoS 2 message that is stored at most once, in a batch of its own."""

    token: int
    packet_id: int
    to: Destinations
    head: bytes
    body: bytes
    sequence: int
    is_repeat: bool
    """It has had its number from an earlier try."""
    began_ms: int
    """When it came, by the listener's clock."""


_Unsure = tuple["Destinations", int, int, int]
"""Destinations that only their leader knows (`Destinations.asks_leader`), flags, bytes of the body,
and of the whole message but for its header."""


class _Sent(NamedTuple):
    """A batch that is on its way to the kernel."""

    tokens: list[int]
    """Of each message; 0: it is not answered."""
    unsure: dict[int, _Unsure]
    """By position."""
    began_ms: int
    """When they came, by the listener's clock."""


class SessionPublisher:
    """The publishing half of one accepted connection. `kernel.api.client.PublishSink`."""

    __slots__ = (
        "_charged",
        "_charging",
        "_client_id",
        "_close",
        "_count",
        "_counters",
        "_env",
        "_figures",
        "_host",
        "_kernel_session",
        "_noted",
        "_persistent",
        "_publisher",
        "_rights",
        "_session",
        "_subscriber",
        "_tenant",
        "_traffic",
    )

    def __init__(
        self,
        env: Environment,
        host: MqttHost,
        session: Session,
        rights: Rights,
        subscriber: Subscriber,
        kernel_session: KernelSession,
        publisher: int,
        *,
        persistent: bool,
        client_id: str,
        close: Callable[[ConnectionClosed | None], None],
        charging: Charging,
        charged: Callable[[], None],
    ) -> None:
        """`close` is told of a connection that ended because a message was refused; `charged` is
        called when something was charged later than in the read that has brought it.
        """
        self._env = env
        self._host = host
        self._figures = host.figures
        self._session = session
        self._rights = rights
        self._tenant = rights.principal.tenant
        self._traffic = env.traffic.of(self._tenant)
        self._counters = env.figures.of(self._tenant).counters
        self._subscriber = subscriber
        self._kernel_session = kernel_session
        self._publisher = publisher
        self._persistent = persistent
        self._client_id = client_id
        self._charging = charging
        self._charged = charged
        self._close = close
        # Packet identifier → number of QoS 2 messages that have a note.
        self._noted = notes.received_of(subscriber.notes) if persistent else {}
        self._count = 0

    # --- Messages ---------------------------------------------------------------------------

    def publish(self, run: PublishRun) -> None:
        """Submit the messages of one chunk. A hot loop."""
        if self._charging.account.is_limited:
            run = self._within_limits(run)
        env, session = self._env, self._session
        tree, known, tenant, allows = env.tree, env.known, self._tenant, self._rights.allows
        now_ms, began_ms = env.clock.wall_ms(), self._figures.now_ms()
        batch = env.client.batch(self._kernel_session, self)
        level, publisher, traffic = session.level, self._publisher, self._traffic
        tokens: list[int] = []
        unsure: dict[int, _Unsure] = {}
        singles: list[_Single] = []
        refused: dict[int, list[int]] = {}
        expiries = run.expiries
        failing = self._charging.failing_topics()
        for index, name in enumerate(run.topics):
            flags, token = run.flags[index], run.tokens[index]
            if not allows(PUBLISH_TREE, name):
                refused.setdefault(self._unless_own(name, _NOT_AUTHORIZED), []).append(token)
                continue
            body = run.payloads[index]
            try:
                to = tree.to(tenant, name, retain=bool(flags & RETAIN_BIT))
            except KernelError as error:
                code = self._unless_own(name, int(reason_of(error)))
                refused.setdefault(code, []).append(token)
                continue
            if not to.count:
                refused.setdefault(_NOBODY, []).append(token)
                self._count_nobody(len(body))
                continue
            if failing and self._is_above_size(to, failing, run, index, refused):
                continue
            head = head_of(
                known[name],
                name,
                batch.uid(),
                now_ms,
                level,
                flags,
                publisher,
                run.properties[index],
                len(body),
                ttl_of(expiries.get(index)) if expiries else 0,
            )
            if flags & _QOS_2 and self._persistent:
                packet_id = run.packet_ids[index]
                sequence = self._noted.get(packet_id, 0)
                # A repeat has its number, and was counted the first time.
                if not to.is_stored and not sequence and not to.asks_leader:
                    self._count_live(_QOS_2, len(head) + len(body) - HEADER_BYTES)
                singles.append(
                    _Single(token, packet_id, to, head, body, sequence, sequence > 0, began_ms)
                )
                continue
            batch.add(to, (head, body), len(head) + len(body))
            tokens.append(token)
            if not to.is_stored:
                size = len(head) + len(body) - HEADER_BYTES
                if to.asks_leader:  # only the answer says whether anybody gets it
                    unsure[len(tokens) - 1] = (to, flags, len(body), size)
                elif traffic is not None:
                    traffic.live[(flags & QOS_BITS) >> 1].count_one(size)
        if tokens:
            hears_no = bool(failing) and self._hears_no(run)
            self._send(batch, _Sent(tokens, unsure, began_ms), hears_no=hears_no)
        if singles:
            self._note(singles)
        if refused:
            self._refuse(refused)

    def _send(self, batch: PublishBatch, sent: _Sent, *, hears_no: bool) -> None:
        batch.tag = sent
        self._counters.published += len(sent.tokens)
        if self._charging.takes(batch, hears_no=hears_no):
            self._submit(batch)

    def submit_kept(self) -> None:
        """Submit what was kept because of a limit, as far as that allows it now."""
        while (batch := self._charging.next_kept()) is not None:
            self._submit(batch)

    def _submit(self, batch: PublishBatch) -> None:
        self._env.client.submit(batch)
        self._env.live.publishes(self._host)

    def _within_limits(self, run: PublishRun) -> PublishRun:
        """What of a run may be published. What is far above a limit is refused if its client can
        hear that, and dropped if it waits for no answer; what can only be delayed stays.
        """
        env, account = self._env, self._charging.account
        now_ms = env.limiter.now_ms()
        messages, size = account.room_until_refused(now_ms)
        most = account.message_bytes_max
        if most is not None and any(len(each) > most for each in run.payloads):
            run = self._no_larger_than(most, run)
        if (messages is None or len(run) <= messages) and (
            size is None or sum(map(len, run.payloads)) <= size
        ):
            return run
        hears = self._session.level == MQTT_5
        kept: list[int] = []
        refused: list[int] = []
        dropped = used = 0
        for index, flags in enumerate(run.flags):
            is_over = (messages is not None and index >= messages) or (
                size is not None and used >= size
            )
            used += len(run.payloads[index])
            if not is_over:
                kept.append(index)
            elif not flags & QOS_BITS:
                dropped += 1
            elif hears and not self._noted.get(run.packet_ids[index]):
                refused.append(run.tokens[index])
            else:
                kept.append(index)
        if dropped:
            account.dropped(account.slowest(now_ms), dropped)
            self._counters.publish_refused += dropped
        if refused:
            account.refused(account.slowest(now_ms), len(refused))
            self._refuse({int(ReasonCode.QUOTA_EXCEEDED): refused})
        return run.only(kept)

    def _is_above_size(
        self,
        to: Destinations,
        failing: Mapping[TopicId, Account],
        run: PublishRun,
        index: int,
        refused: dict[int, list[int]],
    ) -> bool:
        """Whether a message goes nowhere because a topic of its own would rather refuse it now than
        have its client wait. One that can only be delayed, and a repeat, are not refused.
        """
        reason = self._charging.full_topic(to, failing)
        if reason is None:
            return False
        account = self._charging.account
        if not run.flags[index] & QOS_BITS:
            account.dropped(reason, 1)
            self._counters.publish_refused += 1
            return True
        if self._session.level != MQTT_5 or self._noted.get(run.packet_ids[index]):
            return False
        account.refused(reason)
        refused.setdefault(int(ReasonCode.QUOTA_EXCEEDED), []).append(run.tokens[index])
        return True

    def _hears_no(self, run: PublishRun) -> bool:
        """Whether each of its messages can be refused, or dropped."""
        return self._session.level == MQTT_5 or not any(each & QOS_BITS for each in run.flags)

    def _no_larger_than(self, most: int, run: PublishRun) -> PublishRun:
        """The messages of a run that are not too large; the others are refused, or dropped if
        their client waits for no answer.
        """
        account = self._charging.account
        kept, refused, dropped = [], [], 0
        for index, body in enumerate(run.payloads):
            if len(body) <= most:
                kept.append(index)
            elif run.flags[index] & QOS_BITS:
                refused.append(run.tokens[index])
            else:
                dropped += 1
        if dropped:
            account.dropped(account.too_large, dropped)
            self._counters.publish_refused += dropped
        if refused:
            account.refused(account.too_large, len(refused))
            self._refuse({int(ReasonCode.QUOTA_EXCEEDED): refused})
        return run.only(kept)

    def _unless_own(self, name: str, code: int) -> int:
        """The answer to what may not be published. A bridge tells that it is there, as no other
        client may and as the server knows: to that it hears yes.
        """
        return 0 if name == state_of(self._client_id) else code

    def _refuse(self, refused: dict[int, list[int]]) -> None:
        """Answers what goes nowhere; of QoS 0 ones nobody hears."""
        counters = self._counters
        for code, tokens in refused.items():
            if code == _NOBODY:
                counters.nobody += len(tokens)
            elif not code:
                pass
            elif code == _NOT_AUTHORIZED:
                counters.not_authorized += len(tokens)
            else:
                counters.publish_refused += len(tokens)
            answered = [token for token in tokens if token]
            if answered:
                self._answer(answered, code)

    def _count_nobody(self, size: int) -> None:
        """A message that nobody gets."""
        self._charging.for_nobody(size)
        if self._traffic is not None:
            self._traffic.nobody.count_one(size)

    def _count_live(self, flags: int, size: int) -> None:
        """A message that no queue gets, so that no store counts it."""
        if self._traffic is not None:
            self._traffic.live[(flags & QOS_BITS) >> 1].count_one(size)

    def _is_for_nobody(self, unsure: _Unsure) -> bool:
        """Whether a message is for nobody, of which its leader has found no queue; counts it."""
        to, flags, body_bytes, size = unsure
        if to.count > 1:
            self._count_live(flags, size)
            return False
        if self._traffic is not None:
            self._traffic.nobody.count_one(body_bytes)
        return True

    def _answer(self, tokens: Sequence[int], code: int = 0, reason: str = "") -> None:
        if not self._session.is_over:
            self._close(self._session.publish_committed(tokens, code, reason))
            self._host.write_soon()

    # --- Exactly once -----------------------------------------------------------------------

    def _note(self, singles: list[_Single]) -> None:
        """The first step: what is new gets a number, and a note of it."""
        changes: list[notes.Change] = []
        for place, single in enumerate(singles):
            if single.sequence:
                continue
            self._count += 1
            sequence = self._subscriber.epoch << _SEQUENCE_SHIFT | self._count
            singles[place] = single._replace(sequence=sequence)
            self._noted[single.packet_id] = sequence
            changes.append(notes.received(single.packet_id, sequence))
        if changes:
            self._subscriber.note(changes, lambda error: self._submit_singles(singles, error))
        else:
            self._submit_singles(singles, None)

    def _submit_singles(self, singles: list[_Single], error: KernelError | None) -> None:
        """Hand messages over whose identifiers have been noted, or failed to be."""
        if self._session.is_over:
            return
        if error is not None:
            for single in singles:
                self._noted.pop(single.packet_id, None)
            self._answer([each.token for each in singles], reason_of(error), error.message)
            return
        client = self._env.client
        for single in singles:
            batch = client.batch(self._kernel_session, self)
            batch.once(self._subscriber.number, single.sequence)
            batch.add(single.to, (single.head, single.body), len(single.head) + len(single.body))
            batch.tag = single
            if self._charging.takes(batch, hears_no=self._session.level == MQTT_5):
                self._submit(batch)
        self._counters.published += len(singles)
        self._charged()

    def released(self, event: PublishesReleased) -> None:
        """PUBRELs came: PUBCOMP once the notes are gone."""
        packet_ids = event.packet_ids
        noted = [each for each in packet_ids if self._noted.pop(each, None) is not None]
        if len(noted) < len(packet_ids):
            without = set(packet_ids) - set(noted)
            self._session.releases_committed([each for each in packet_ids if each in without])
        if noted:
            changes = [notes.released(packet_id) for packet_id in noted]
            self._subscriber.note(changes, lambda error: self._release_noted(noted, error))

    def _release_noted(self, packet_ids: Sequence[int], error: KernelError | None) -> None:
        # An error says that another connection has the session: this one is being closed.
        if error is None and not self._session.is_over:
            self._session.releases_committed(packet_ids)
            self._host.write_soon()

    # --- Completion -------------------------------------------------------------------------

    def published(self, batch: PublishBatch) -> None:
        """See `PublishSink`: answers what is on disk."""
        tag = batch.tag
        failures = batch.failures
        assert isinstance(tag, _Single | _Sent)
        if not failures or len(failures) < batch.count:
            self._figures.stored(tag.began_ms)
        if isinstance(tag, _Single):
            self._published_once(tag, failures[0] if failures else None, batch.unlisted)
            return
        tokens = tag.tokens
        if batch.unlisted:
            tokens = self._without_nobody(tag, batch.unlisted, failures or {})
        if failures:
            self._published_with_failures(tokens, dict(failures))
        elif not self._session.is_over:
            self._answer(tokens if 0 not in tokens else [token for token in tokens if token])

    def _without_nobody(
        self, sent: _Sent, unlisted: Sequence[int], failures: Mapping[int, KernelError]
    ) -> list[int]:
        """Tokens of the batch that are still to be answered, once those for nobody are."""
        tokens = list(sent.tokens)
        nobody: list[int] = []
        for position in unlisted:
            unsure = sent.unsure.get(position)
            if unsure is not None and position not in failures and self._is_for_nobody(unsure):
                nobody.append(tokens[position])
                tokens[position] = 0
        if nobody:
            self._refuse({_NOBODY: nobody})
        return tokens

    def _published_with_failures(self, tokens: list[int], failures: dict[int, KernelError]) -> None:
        self._counters.publish_refused += len(failures)
        stored = [token for place, token in enumerate(tokens) if token and place not in failures]
        if stored:
            self._answer(stored)
        for place, error in failures.items():
            if tokens[place]:
                self._answer([tokens[place]], reason_of(error), error.message)

    def _found_no_queue(self, single: _Single) -> None:
        """Its leader has. What live routes its first try met, a repeat cannot know."""
        size = len(single.head) + len(single.body) - HEADER_BYTES
        unsure = (single.to, _QOS_2, len(single.body), size)
        if not single.is_repeat and self._is_for_nobody(unsure):
            self._refuse({_NOBODY: [single.token]})
        else:
            self._answer([single.token])

    def _published_once(
        self, single: _Single, error: KernelError | None, unlisted: Sequence[int]
    ) -> None:
        if error is None and unlisted:
            self._found_no_queue(single)
            return
        if error is None:
            self._answer([single.token])
            return
        self._counters.publish_refused += 1
        if error.code not in _UNCERTAIN:
            # It is stored nowhere: the identifier means a new message from now on.
            self._noted.pop(single.packet_id, None)
            self._subscriber.note([notes.released(single.packet_id)])
        self._answer([single.token], reason_of(error), error.message)
