"""What a receive brings of one message, before it is shown as one of SQS (`delivered`)."""

from __future__ import annotations

from typing import NamedTuple


class Delivery(NamedTuple):
    """One message that was received."""

    slot: bytes
    handle: str
    offset: int
    attempt: int
    """From 1."""
    first_received_ms: int
