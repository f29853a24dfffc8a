"""The clients that are there, and the leases that are renewed for them.

A push consumer receives with `auto_renew`: it names no invisible time, and the server keeps the
messages from it for as long as it lives. They are leased for `auto_renew_lease_ms`, and every half
of that time the leases of clients that were heard of are extended, with the same token, until the
message is settled or `auto_renew_ms_max` is over. When the client has gone, or this gateway has,
nothing extends them: the messages come back by themselves within one lease.

Nothing else depends on what is known here: a client unknown, because this gateway is new to it, is
served as any other (docs/design/rocketmq.md). Sans-I/O: time is a parameter.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from adapters.base import RECHECK_STEP
from kernel.api.client import LeaseChange, LeaseVerb

from ..errors import RocketmqError
from ..settings import (
    CLIENT_FORGOTTEN_MS,
    CLIENT_SILENT_MS_MAX,
    CLIENTS_MAX,
    MOVED_MS,
    MOVED_SILENT_MS,
    RENEWALS_MAX,
    RENEWALS_PER_CALL,
    TURNED_AWAY_MS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kernel.api.model import TopicInfo

    from ..settings import RocketmqSettings

ClientKey = tuple[str, str]
"""(tenant, client id)."""


class KnownClient:
    """What is known of one client."""

    __slots__ = ("connection", "key", "renewals", "seen_ms", "streams")

    def __init__(self, key: ClientKey, now_ms: int) -> None:
        self.key = key
        self.seen_ms = now_ms
        self.streams = 0
        """Telemetry streams that are open."""
        self.connection = ""
        """What the last of them is called."""
        self.renewals: dict[bytes, Renewal] = {}
        """By lease token."""

    def is_alive(self, now_ms: int) -> bool:
        """Whether it was heard of lately."""
        return self.streams > 0 or now_ms - self.seen_ms <= CLIENT_SILENT_MS_MAX


class Renewal:
    """A lease that is extended as long as its client lives."""

    __slots__ = ("check", "client", "due_ms", "first_ms", "group", "token", "topic")

    def __init__(
        self,
        client: KnownClient,
        topic: TopicInfo,
        group: str,
        token: bytes,
        now_ms: int,
        check: Callable[[], None],
    ) -> None:
        self.client = client
        self.topic = topic
        self.group = group
        self.token = token
        self.check = check
        """Raises RocketmqError once its caller may not consume any more."""
        self.first_ms = now_ms
        self.due_ms = 0


class Extension:
    """Leases of one group on one topic that are to be changed in the same way."""

    __slots__ = ("changes", "group", "renewals", "topic")

    def __init__(self, topic: TopicInfo, group: str) -> None:
        self.topic = topic
        self.group = group
        self.changes: list[LeaseChange] = []
        self.renewals: list[Renewal] = []


class Clients:
    """All clients of one adapter. Times are monotonic milliseconds."""

    def __init__(self, settings: RocketmqSettings) -> None:
        self._lease_ms = settings.auto_renew_lease_ms
        self._age_ms_max = settings.auto_renew_ms_max
        self._clients: dict[ClientKey, KnownClient] = {}
        """The one heard of longest ago stands first."""
        self._by_token: dict[bytes, Renewal] = {}
        """The one that is due first stands first: all wait equally long."""
        self._elsewhere: dict[ClientKey, tuple[Mapping[str, str], int]] = {}
        """Clients that are to use another gateway: its addresses, and when they asked for routes.
        The one that has not for longest stands first.
        """
        self._turned_away: dict[ClientKey, int] = {}
        """Clients that were one connection too many, and until when nothing of them is served."""
        self.stream_count = 0
        """Clients with a telemetry stream, or more."""
        self.revoked = 0
        """Leases that are renewed no longer because their holder has lost the right."""
        self.not_renewed = 0
        """Leases that were too many to be renewed."""

    def __len__(self) -> int:
        return len(self._clients)

    def alive_count(self, now_ms: int) -> int:
        """Clients that are there: with a stream, or heard of lately."""
        return self.stream_count + sum(1 for _ in self.without_stream(now_ms))

    def without_stream(self, now_ms: int) -> Iterator[KnownClient]:
        """Clients that were heard of lately and have no stream: they were here before this server
        was started anew, or never open one.
        """
        for client in reversed(self._clients.values()):
            silent_ms = now_ms - client.seen_ms
            if silent_ms > CLIENT_SILENT_MS_MAX:
                return
            has_gone = silent_ms > MOVED_SILENT_MS and self.is_sent_elsewhere(client.key)
            if not client.streams and not has_gone:
                yield client

    def turn_away(self, key: ClientKey, now_ms: int) -> None:
        """A client is one connection too many: clients go on without their stream, so that their
        calls are refused too, until they may try again.
        """
        if len(self._turned_away) >= CLIENTS_MAX:
            del self._turned_away[next(iter(self._turned_away))]
        self._turned_away[key] = now_ms + TURNED_AWAY_MS

    def is_turned_away(self, key: ClientKey, now_ms: int) -> bool:
        """Whether it is one connection too many."""
        until_ms = self._turned_away.get(key)
        if until_ms is None or now_ms < until_ms:
            return until_ms is not None
        del self._turned_away[key]
        return False

    def connection_of(self, key: ClientKey) -> str:
        """What the telemetry stream is called that a client has opened last; "": it has none."""
        client = self._clients.get(key)
        return client.connection if client is not None and client.streams else ""

    def stream_opened(self, client: KnownClient, connection: str) -> None:
        """A telemetry stream of a client was opened; `connection`: what it is called."""
        client.connection = connection
        self._turned_away.pop(client.key, None)
        self.stream_count += not client.streams
        client.streams += 1

    def stream_closed(self, client: KnownClient) -> None:
        """The telemetry stream of a client has ended."""
        client.streams -= 1
        self.stream_count -= not client.streams

    @property
    def renewal_count(self) -> int:
        """Leases that are renewed."""
        return len(self._by_token)

    # --- Clients that were sent to another gateway ------------------------------------------

    def send_elsewhere(self, key: ClientKey, to: Mapping[str, str], now_ms: int) -> None:
        """A client is to use another gateway, at these addresses by listener, until the caller
        empties them.
        """
        self._elsewhere.pop(key, None)
        if len(self._elsewhere) >= CLIENTS_MAX:
            del self._elsewhere[next(iter(self._elsewhere))]
        self._elsewhere[key] = (to, now_ms)

    def is_sent_elsewhere(self, key: ClientKey) -> bool:
        """Whether a client was asked to use another gateway, which is there."""
        return bool(self._elsewhere.get(key, ({}, 0))[0])

    def address_for(self, key: ClientKey, listener: str, now_ms: int) -> str | None:
        """Where a client that asks for its routes is to go instead."""
        to, _ = self._elsewhere.pop(key, ({}, 0))
        if to:
            self._elsewhere[key] = (to, now_ms)
        return to.get(listener)

    def heard_of(self, key: ClientKey, now_ms: int) -> KnownClient:
        """A client has shown that it lives."""
        client = self._clients.pop(key, None)
        if client is None:
            client = KnownClient(key, now_ms)
            if len(self._clients) >= CLIENTS_MAX:
                self._forget(next(iter(self._clients.values())))
        client.seen_ms = now_ms
        self._clients[key] = client
        return client

    # --- Renewals ---------------------------------------------------------------------------

    def renew(
        self,
        client: KnownClient,
        topic: TopicInfo,
        group: str,
        tokens: Iterable[bytes],
        now_ms: int,
        check: Callable[[], None],
    ) -> None:
        """Extend these leases, just given, from now on, as long as `check` raises nothing."""
        for token in tokens:
            if len(self._by_token) >= RENEWALS_MAX:
                self.not_renewed += 1
                continue
            renewal = Renewal(client, topic, group, token, now_ms, check)
            client.renewals[token] = renewal
            self._plan(renewal, now_ms)

    def settled(self, token: bytes) -> None:
        """The lease ends, or its client has said until when it holds."""
        renewal = self._by_token.pop(token, None)
        if renewal is not None:
            renewal.client.renewals.pop(token, None)

    def recheck(self) -> Iterator[None]:
        """`adapters.base.Holder`: leases of who may not consume any more are renewed no longer.
        Their messages come back by themselves, as from a client that has gone.
        """
        for seen, renewal in enumerate(list(self._by_token.values()), start=1):
            if not seen % RECHECK_STEP:
                yield
            try:
                renewal.check()
            except RocketmqError:
                self.settled(renewal.token)
                self.revoked += 1

    def ended(self, key: ClientKey) -> Sequence[Extension]:
        """A client has said that it goes: what gives back the leases renewed for it."""
        client = self._clients.pop(key, None)
        if client is None:
            return ()
        over = list(client.renewals.values())
        for renewal in over:
            self.settled(renewal.token)
        return _changes(over, LeaseVerb.RELEASE, 0)

    def tick(self, now_ms: int) -> Sequence[Extension]:
        """What is to be extended now. Forgets clients that have gone without a word."""
        extended: list[Renewal] = []
        for renewal in list(takewhile(lambda each: each.due_ms <= now_ms, self._by_token.values())):
            age_ms = now_ms - renewal.first_ms
            if age_ms < self._age_ms_max and renewal.client.is_alive(now_ms):
                extended.append(renewal)
                self._plan(renewal, now_ms)
            else:
                self.settled(renewal.token)
        self._forget_silent(now_ms)
        for key, _ in list(
            takewhile(lambda each: each[1][1] <= now_ms - MOVED_MS, self._elsewhere.items())
        ):
            del self._elsewhere[key]
        return _changes(extended, LeaseVerb.EXTEND, self._lease_ms)

    def _plan(self, renewal: Renewal, now_ms: int) -> None:
        self._by_token.pop(renewal.token, None)
        renewal.due_ms = now_ms + self._lease_ms // 2
        self._by_token[renewal.token] = renewal

    def _forget_silent(self, now_ms: int) -> None:
        silent_since_ms = now_ms - CLIENT_FORGOTTEN_MS
        for client in list(
            takewhile(lambda each: each.seen_ms <= silent_since_ms, self._clients.values())
        ):
            if client.streams:
                self.heard_of(client.key, now_ms)
            else:
                self._forget(client)

    def _forget(self, client: KnownClient) -> None:
        del self._clients[client.key]
        for token in list(client.renewals):
            self.settled(token)


def _changes(renewals: Iterable[Renewal], verb: LeaseVerb, delay_ms: int) -> list[Extension]:
    """The same change of many leases, a call of the kernel each."""
    calls: list[Extension] = []
    open_calls: dict[tuple[int, str], Extension] = {}
    for renewal in renewals:
        key = (renewal.topic.id, renewal.group)
        call = open_calls.get(key)
        if call is None or len(call.changes) >= RENEWALS_PER_CALL:
            call = open_calls[key] = Extension(renewal.topic, renewal.group)
            calls.append(call)
        call.changes.append(LeaseChange(renewal.token, verb, delay_ms))
        call.renewals.append(renewal)
    return calls
