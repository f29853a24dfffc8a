"""Copies of one message that several filters of a session bring, settled together.

Each filter has a queue of its own, and the session sends the first copy that comes. The others are
held until the delivery of the first one has ended. So what the client has not acknowledged is
unacknowledged in every queue that has brought it, and after a break each queue brings it again, in
its place: whichever queue comes first then, the order holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.mqtt.limits import COPIES_HELD_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from adapters.mqtt.delivery.notes import Uid


class Copies:
    """The copies of what is on its way to one client, by their tokens."""

    __slots__ = ("_tokens", "_uids", "_without_credit")

    def __init__(self) -> None:
        # The first copy's token, then those of the copies that are held.
        self._tokens: dict[Uid, list[int]] = {}
        self._uids: dict[int, Uid] = {}
        """Of first copies."""
        self._without_credit = 0

    def __contains__(self, uid: Uid) -> bool:
        return uid in self._tokens

    def begin(self, uid: Uid, token: int) -> None:
        """The first copy of a message is on its way."""
        self._tokens[uid] = [token]
        self._uids[token] = uid

    def uid_of(self, token: int) -> Uid | None:
        """The message of a first copy that is on its way."""
        return self._uids.get(token)

    def hold(self, uid: Uid, token: int) -> bool:
        """Another copy has come while the first is on its way. Returns whether the credit that it
        used is to be given back now: else what is held would make the client's window smaller.
        """
        self._tokens[uid].append(token)
        if self._without_credit >= COPIES_HELD_MAX:
            return False
        self._without_credit += 1
        return True

    def end(self, token: int) -> Sequence[int]:
        """The delivery of a first copy has ended: which copies are to be settled with it."""
        uid = self._uids.pop(token, None)
        if uid is None:
            return ()
        return self._tokens.pop(uid)[1:]

    def returns_credit(self) -> bool:
        """A copy that was held is settled: whether the credit that it used is to be given back."""
        if not self._without_credit:
            return True
        self._without_credit -= 1
        return False
