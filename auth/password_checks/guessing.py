"""Who guesses passwords waits: longer after each failure, for each pair of an address and a user.

The first `FREE` failures of a pair cost nothing but the check: people mistype. From then on the
next attempt of the pair is not looked at before its time, which comes DELAY_MS_FIRST later after
the first of them, twice as late after each further one, DELAY_MS_MAX at most. Attempts of a pair
that come together stand in line: opening a thousand connections makes nobody guess faster. Who
would have to stand there for longer than WAIT_MS_MAX is turned away at once.

- A pair, because an address alone is an office behind one router, and a user alone could be locked
  out by anybody. A login that is right ends it, and so does a quarter of an hour without failure.
- Memory is bounded. Of one address the least guessed user is forgotten first, so that guessing many
  names does not wash away what was noted of one; of the addresses the one whose last failure is
  longest ago. Addresses of IPv6 count by /64, which is what one customer has.

Sans-I/O: the time is a parameter.
"""

from __future__ import annotations

import ipaddress

FREE = 3
DELAY_MS_FIRST = 250
DELAY_MS_MAX = 10_000
"""Six guesses a minute; a client that gives up on a connect after 10 s, as most do, still hears."""

WAIT_MS_MAX = 10_000
QUIET_MS = 900_000

SOURCES_MAX = 4_096
USERS_PER_SOURCE_MAX = 16
"""With these 65,536 pairs of about 200 bytes, 13 MB, if somebody has 4,096 addresses to spare."""


def source_of(address: str) -> str:
    """The source that a peer's address, `host:port` or `host`, counts as."""
    host = address
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, 64), strict=False))
    return host


class _Pair:
    """One user from one source."""

    __slots__ = ("failed", "failed_ms", "free_ms", "running")

    def __init__(self) -> None:
        self.failed = 0
        self.failed_ms = 0
        self.running = 0
        """Attempts that are not decided: each is taken for a failure until it is."""
        self.free_ms = 0
        """When the next one may begin."""


class Guesses:
    """What failed of late. Belongs to the event loop."""

    def __init__(self) -> None:
        self._sources: dict[str, dict[str, _Pair]] = {}
        """The source whose last failure is longest ago stands first."""
        self.delayed = 0
        """Attempts that had to wait."""
        self.turned_away = 0
        """Attempts that would have had to wait for too long."""

    def __len__(self) -> int:
        return sum(map(len, self._sources.values()))

    def is_suspect(self, source: str) -> bool:
        """Whether something from there has failed of late."""
        users = self._sources.get(source)
        return users is not None and any(pair.failed for pair in users.values())

    def begin(self, source: str, user: str, now_ms: int) -> int | None:
        """An attempt: for how many ms it has to wait; None: too long, it is turned away. Unless it
        is, `end` follows.
        """
        pair = self._sources.setdefault(source, {}).setdefault(user, _Pair())
        if pair.failed and now_ms - pair.failed_ms > QUIET_MS:
            pair.failed = 0
        starts_ms = max(now_ms, pair.free_ms)
        if starts_ms - now_ms > WAIT_MS_MAX:
            self.turned_away += 1
            return None
        pair.free_ms = starts_ms + _delay_ms(pair.failed + pair.running + 1)
        pair.running += 1
        self.delayed += starts_ms > now_ms
        return starts_ms - now_ms

    def end(self, source: str, user: str, now_ms: int, *, right: bool | None) -> None:
        """It was right or wrong; None: that was not found out."""
        users = self._sources.get(source, {})
        pair = users.get(user)
        if pair is None:
            return
        pair.running -= 1
        if right:
            pair.failed = pair.free_ms = 0
        elif right is not None:
            pair.failed += 1
            pair.failed_ms = now_ms
            del self._sources[source]
            self._sources[source] = users
        if not (pair.failed or pair.running):
            del users[user]
            if not users:
                del self._sources[source]
        elif len(users) > USERS_PER_SOURCE_MAX:
            _forget_one(users)
        if len(self._sources) > SOURCES_MAX:
            self._forget_source()

    def _forget_source(self) -> None:
        for source, users in self._sources.items():
            if not any(pair.running for pair in users.values()):
                del self._sources[source]
                return


def _forget_one(users: dict[str, _Pair]) -> None:
    """The user that was guessed least, and of these the one longest ago."""
    idle = [user for user, pair in users.items() if not pair.running]
    if len(idle) > USERS_PER_SOURCE_MAX:
        del users[min(idle, key=lambda user: (users[user].failed, users[user].failed_ms))]


def _delay_ms(failures: int) -> int:
    """How long after an attempt that is the `failures`th in a row the next may begin."""
    beyond = failures - FREE
    if beyond < 0:
        return 0
    return min(DELAY_MS_FIRST << min(beyond, 16), DELAY_MS_MAX)
