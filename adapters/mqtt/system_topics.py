"""Names below `$SYS`: what the server says of itself, as Mosquitto does. Nobody else says anything
there (`kernel.limits.TREE_ROOTS_RESERVED`).
"""

from __future__ import annotations

from typing import Final

ROOT: Final = "$SYS"
_CONNECTION: Final = f"{ROOT}/broker/connection/"


def state_of(client_id: str) -> str:
    """Name under which a Mosquitto bridge with this client id tells that it is connected, as its
    will that it is not. It is let do so, for its own id; what it says the server knows, and keeps
    nothing of it.
    """
    return f"{_CONNECTION}{client_id}/state"
