"""Reasons why messages leave their group, as commands and snapshots spell them."""

from __future__ import annotations

from ...api.model import Reason

REASON_CODES = {
    Reason.ATTEMPTS: 1,
    Reason.EXPIRED: 2,
    Reason.REJECTED: 3,
    Reason.OVERFLOW: 4,
    Reason.TOO_LARGE: 5,
}
REASONS = {code: reason for reason, code in REASON_CODES.items()}
