"""ReceiveRequestAttemptId: a receive from a FIFO queue whose answer got lost is asked for again.

Within five minutes it brings the same messages with the same handles, leased anew, unless one of
them was deleted or its visibility changed meanwhile: then it cannot be repeated. Messages whose
visibility has ended are received as always. Remembered by this gateway alone: another one serves
the receive as a new one, and the groups of the lost one are in flight until their time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from adapters.sqs.origin import ORIGIN_BYTE
from kernel.api.client import LeaseChange, LeaseVerb
from kernel.api.model import DEFAULT_GROUP
from kernel.common.ids import Offset

from .. import error_codes as errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kernel.api.client import Client, ReceiveSpec

    from .received import Delivery

ATTEMPTS_KEPT_MAX: Final = 5_000
"""Attempts remembered, 2 KB each with ten messages; the oldest are forgotten first."""

ATTEMPT_MS: Final = 300_000
"""As long as AWS remembers one."""

_QUEUE_NUMBER: Final = 0xFF

Key = tuple[int, str]
"""Topic id and attempt id."""


class Attempt(NamedTuple):
    """What one receive brought."""

    queue: int
    """Id of the kernel queue."""
    deliveries: Sequence[Delivery]
    """Without the messages."""
    tokens: Sequence[bytes]
    """Of each."""


class Attempts:
    """Remembers the receives of one adapter by their attempt ids."""

    def __init__(self) -> None:
        self._kept: dict[Key, tuple[int, Attempt | None]] = {}
        """When each was made; None: one of its messages was changed."""
        self._by_token: dict[bytes, Key] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, key: Key, attempt: Attempt, now_ms: int) -> None:
        """A receive with an attempt id is about to be answered."""
        self._forget(key)
        if len(self._kept) >= ATTEMPTS_KEPT_MAX:
            self._forget(next(iter(self._kept)))
        self._kept[key] = (now_ms, attempt)
        for token in attempt.tokens:
            self._by_token[token] = key

    def find(self, key: Key, now_ms: int) -> Attempt | None:
        """What that attempt has brought. Raises InvalidParameterValue: it cannot be repeated."""
        made_ms, attempt = self._kept.get(key, (0, None))
        if key not in self._kept or now_ms - made_ms >= ATTEMPT_MS:
            self._forget(key)
            return None
        if attempt is None:
            raise errors.attempt_over(key[1])
        return attempt

    def changed(self, tokens: Iterable[bytes]) -> None:
        """Messages were deleted, or their visibility changed: what brought them is over (hot)."""
        if not self._by_token:
            return
        for token in tokens:
            key = self._by_token.get(token)
            if key is not None:
                made_ms, _ = self._kept[key]
                self._drop_tokens(key)
                self._kept[key] = (made_ms, None)

    def _forget(self, key: Key) -> None:
        self._drop_tokens(key)
        self._kept.pop(key, None)

    def _drop_tokens(self, key: Key) -> None:
        _, attempt = self._kept.get(key, (0, None))
        if attempt is not None:
            for token in attempt.tokens:
                self._by_token.pop(token, None)


def attempt_of(queue: int, deliveries: Sequence[Delivery], tokens: Sequence[bytes]) -> Attempt:
    """What is to be remembered of a receive from a kernel queue."""
    return Attempt(queue, [each._replace(slot=b"") for each in deliveries], tokens)


async def repeated(
    attempts: Attempts, client: Client, now_ms: int, spec: ReceiveSpec, key: Key
) -> list[Delivery]:
    """What an attempt brought and still holds, leased anew; none: it is to be received.

    Raises InvalidParameterValue: one of its messages was changed.
    """
    attempt = attempts.find(key, now_ms)
    if attempt is None or not spec.lease_ms:
        return []
    changes = [
        LeaseChange(token, LeaseVerb.EXTEND, spec.lease_ms, by=spec.by) for token in attempt.tokens
    ]
    outcomes = await client.settle_leases(spec.topic, DEFAULT_GROUP, changes, ORIGIN_BYTE)
    held: list[Delivery] = []
    number = attempt.queue & _QUEUE_NUMBER
    for delivery, error in zip(attempt.deliveries, outcomes, strict=True):
        if error is None:
            offset = Offset(delivery.offset)
            for found, slot in await client.peek(spec.topic, number, offset, 1):
                if found == offset:
                    held.append(delivery._replace(slot=slot))
    return held
