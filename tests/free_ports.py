"""Ports of loopback for servers that are told theirs before they bind it.

Not those that the system hands out (32768 and above on Linux): between the choice and the bind a
client anywhere on the machine could get one for its own end of a connection.
"""

from __future__ import annotations

import random
import socket

FIRST, LAST = 20_000, 32_000
_CHANCE = random.SystemRandom()
"""Lanes of tests run side by side: they are not to choose alike."""


def free_ports(count: int) -> list[int]:
    """So many different ones that nobody listens on."""
    held: dict[int, socket.socket] = {}
    while len(held) < count:
        port = _CHANCE.randrange(FIRST, LAST)
        found = socket.socket()
        try:
            found.bind(("127.0.0.1", port))
        except OSError:
            found.close()
        else:
            held[port] = found
    for each in held.values():
        each.close()
    return list(held)
