"""Sections: each a part of what gateways and stores say to each other, with methods of its own.

A section has an object at either end of a connection, and both know the numbers of its methods
(`calls`). `lane_service.GatewayService` and `leaders.RemoteLeaders` hand what comes to the section
whose method it is; what a section says goes by the channels that it has been told of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..rpc.channel import Channel, Reply
from ..rpc.handshake import Hello


class Section(Protocol):
    """What a process says about one subject: it hears of connections and of their messages."""

    @property
    def methods(self) -> Sequence[int]:
        """Its methods, in either direction."""

    def opened(self, channel: Channel, peer: Hello) -> None:
        """A process of the other kind can be reached."""

    def closed(self, channel: Channel) -> None:
        """It cannot be reached any more: nothing more comes by this channel."""

    def told(self, channel: Channel, method: int, payload: bytes) -> None:
        """A message has come. Raises RpcError for one that is none: the connection ends."""

    def called(self, channel: Channel, method: int, payload: bytes, reply: Reply) -> None:
        """A question has come; `reply` is called once, with parts or a KernelError. Raises
        RpcError, as `told`.
        """


class Sections:
    """All sections of one process."""

    def __init__(self) -> None:
        self._all: list[Section] = []
        self._by_method: dict[int, Section] = {}

    def add(self, section: Section) -> None:
        """One more. Raises ValueError if a method of it belongs to another."""
        taken = self._by_method.keys() & set(section.methods)
        if taken:
            raise ValueError(f"methods {sorted(taken)} belong to another section")
        self._all.append(section)
        self._by_method.update(dict.fromkeys(section.methods, section))

    def of(self, method: int) -> Section | None:
        """The section of a method; None if there is none."""
        return self._by_method.get(method)

    def opened(self, channel: Channel, peer: Hello) -> None:
        """Tell every section."""
        for each in self._all:
            each.opened(channel, peer)

    def closed(self, channel: Channel) -> None:
        """Tell every section."""
        for each in self._all:
            each.closed(channel)
