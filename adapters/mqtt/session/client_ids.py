"""What the kernel calls a client."""

from __future__ import annotations

from hashlib import blake2b

from adapters.mqtt.limits import SUBSCRIBER_NAME_BYTES_MAX


def subscriber_name(client_id: str) -> str:
    """The kernel's name for a client: its id, or a digest of one that is too long for a name."""
    raw = client_id.encode()
    if len(raw) <= SUBSCRIBER_NAME_BYTES_MAX:
        return client_id
    return f"blake2b:{blake2b(raw, digest_size=32).hexdigest()}"
