"""What a service manager is told: that the process serves now, and that it has begun to stop.

systemd names a socket in NOTIFY_SOCKET (`Type=notify`, sd_notify(3)): `systemctl start` then
returns when clients can come, and fails if they never will. Without that variable nobody is told.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import Final

SERVING: Final = "READY=1"
STOPPING: Final = "STOPPING=1"

VARIABLE: Final = "NOTIFY_SOCKET"


def tell_manager(state: str) -> None:
    """Send one of the states above. Nothing is raised: a manager that is gone hears nothing."""
    address = os.environ.get(VARIABLE, "")
    if not address:
        return
    if address.startswith("@"):
        # In Linux's abstract namespace, which has no files.
        address = "\0" + address[1:]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        # One that does not read must not stop this process.
        sender.setblocking(False)
        sender.sendto(state.encode(), address)
