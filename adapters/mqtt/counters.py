"""What the adapter counts of itself."""

from __future__ import annotations


class Counters:
    """What the adapter has done since it started. Plain integers, read when somebody asks."""

    __slots__ = (
        "connections",
        "connections_refused",
        "delivered",
        "dropped_slow",
        "keep_alive_timeouts",
        "logins_refused",
        "nobody",
        "not_authorized",
        "not_owner",
        "publish_refused",
        "published",
        "retained_sent",
        "revoked",
        "taken_over",
        "too_large",
        "withheld",
    )

    def __init__(self) -> None:
        self.connections = 0
        """Connections opened."""
        self.connections_refused = 0
        """Connections dropped at once, above `connections_max`."""
        self.logins_refused = 0
        self.not_owner = 0
        """Connections refused since their client id is not their user's: somebody else's session
        has it, or no policy allows it."""
        self.published = 0
        """Messages submitted to the kernel."""
        self.publish_refused = 0
        """Messages that the kernel has refused."""
        self.nobody = 0
        """Messages that nobody gets."""
        self.not_authorized = 0
        """Messages that their publisher may not publish."""
        self.delivered = 0
        """Deliveries to clients, retained ones and repetitions included."""
        self.retained_sent = 0
        self.revoked = 0
        """Connections ended because their user may not consume any more what it subscribed to."""
        self.dropped_slow = 0
        """Live messages that a client did not take in time."""
        self.too_large = 0
        """Deliveries left out because the client's maximum packet size is less."""
        self.taken_over = 0
        """Connections ended because their client id connected anew."""
        self.withheld = 0
        """Subscriptions of resumed sessions that bring nothing, since the user has no right."""
        self.keep_alive_timeouts = 0
