"""Calls of an API, counted for the bill: by tenant, the call's own name, and how it ended.

For protocols of requests and answers (SQS, RocketMQ). What is counted is the call with the octets
of its request and of its answer; the messages in it are counted by the store, which holds them.

Who calls keeps its counters, so that a call that was carried out costs one look-up and three
additions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from metering.schema import Action, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from metering.counters import Counter

# Members of an enum are hashed by Python code: 0.2 us a call.
_OK = Outcome.OK.value


class Calls:
    """Counts the calls of one protocol's adapter. `adapters.base.CallMeter`."""

    __slots__ = ("_actions", "_counter")

    def __init__(
        self, counter: Callable[[str, str, str, str], Counter], actions: Mapping[str, str]
    ) -> None:
        """`counter(tenant, action, name, outcome)` makes a counter or finds it; `actions` by the
        call's name: all others administer.
        """
        self._counter = counter
        self._actions = actions

    def counter(self, tenant: str, name: str) -> Counter:
        """Counts calls that are carried out. Kept by whoever makes them."""
        return self._counter(tenant, self._actions.get(name, Action.ADMIN), name, _OK)

    def ended(self, tenant: str, name: str, outcome: str, bytes_in: int, bytes_out: int) -> None:
        """A call ended otherwise: one of `metering.schema.Outcome`."""
        action = self._actions.get(name, Action.ADMIN)
        self._counter(tenant, action, name, outcome).call(bytes_in, bytes_out)
