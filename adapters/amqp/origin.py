"""The byte in a stored message that says that AMQP wrote its native block. It is on disk: it
never changes, and no other protocol is given it.
"""

from __future__ import annotations

from typing import Final

ORIGIN_BYTE: Final = 1
