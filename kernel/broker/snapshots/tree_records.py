"""Snapshot records of the topic tree's part of a state: subscribers, wills, retained messages."""

from __future__ import annotations

import msgspec

from ..log_commands.tree_commands import WillRecord


class SubscriberRecord(msgspec.Struct, frozen=True, array_like=True, tag="subscriber"):
    """One subscriber of the topic tree."""

    number: int
    tenant: str
    name: str
    epoch: int
    connected: bool
    expiry_ms: int | None
    will: WillRecord | None
    will_at_ms: int | None
    ends_at_ms: int | None
    subscriptions: list[tuple[str, str, bytes]]
    notes: list[tuple[bytes, bytes]]
    ended: bool
    owner: int = 0
    user: str = ""


class WillItemRecord(msgspec.Struct, frozen=True, array_like=True, tag="will"):
    """One will on its way."""

    number: int
    tenant: str
    will: WillRecord


class RetainedRecord(msgspec.Struct, frozen=True, array_like=True, tag="retained"):
    """One retained message."""

    tenant: str
    name: str
    index: int
    slot: int
    time_ms: int
    ttl_ms: int


TreeRecord = SubscriberRecord | WillItemRecord | RetainedRecord
