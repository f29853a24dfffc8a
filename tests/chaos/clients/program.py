"""One lane as a process: `python -m tests.chaos.clients.program NAME TOPIC '{"sqs": [1, 2]}'`.

Lines on stdin: `halt` ends publishing (the message under way is repeated until it is answered with
ok), the end of stdin ends it all. Events of the history go to stdout. Whatever fails is repeated at
the next gateway.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from tests.chaos.clients.lanes import LANES, Lane
from tests.chaos.clients.port import Consumer, Publisher, Refused
from tests.chaos.history import Acked, Down, Event, Got, Note, Sent, ident_of, spell

T = TypeVar("T")

KEYS = 3
INTERVAL_SECONDS = 0.02
AGAIN_SECONDS = 0.05
"""After a connection was refused."""

REFUSED_SECONDS = 0.2
"""After a message was: there is no room, or the like."""


class Load:
    """Publishes and consumes until told otherwise."""

    def __init__(
        self, name: str, lane: Lane, topic: str, gateways: list[dict[str, int]], out: int
    ) -> None:
        self._name = name
        self._lane = lane
        self._topic = topic
        self._gateways = gateways
        self._out = out
        self._links = itertools.count()
        self.halted = threading.Event()

    def tell(self, event: Event) -> None:
        """A line is written by one call, so that those of two threads do not mix."""
        os.write(self._out, spell(event))

    def _note(self, text: str) -> None:
        self.tell(Note(self._name, time.monotonic(), text))

    # --- Publishing -------------------------------------------------------------------------

    def publish(self) -> None:
        """One message after the other, key by key in turn."""
        connections = self._connected(self._lane.publisher, first=0)
        publisher = next(connections)
        for number in itertools.count():
            for key in range(KEYS):
                ident = ident_of(self._name, key, number)
                while not self._sent(publisher, ident, str(key)):
                    publisher = next(connections)
                if self.halted.wait(INTERVAL_SECONDS):
                    self._note("published all")
                    return

    def _sent(self, publisher: Publisher, ident: str, key: str) -> bool:
        """Whether it was answered with ok; False: the connection is of no use any more."""
        while True:
            began = time.monotonic()
            try:
                publisher.send(ident, key)
            except Refused as refused:
                ended = time.monotonic()
                self.tell(Sent(self._name, ident, began, ended, "refused", why=str(refused)[:200]))
                time.sleep(REFUSED_SECONDS)
            except Exception as error:  # noqa: BLE001 - whatever a library says of a broken link
                why, ended = f"{type(error).__name__}: {error}"[:200], time.monotonic()
                copies = max(publisher.copies, 1)
                self.tell(Sent(self._name, ident, began, ended, "unknown", copies, why))
                with contextlib.suppress(Exception):
                    publisher.close()
                return False
            else:
                ended, copies = time.monotonic(), max(publisher.copies, 1)
                self.tell(Sent(self._name, ident, began, ended, "ok", copies))
                return True

    # --- Consuming --------------------------------------------------------------------------

    def consume(self) -> None:
        """For ever."""
        for consumer in self._connected(self._lane.consumer, first=1):
            link = next(self._links)
            self._note(f"link {link} consumes")
            try:
                while True:
                    self._take(consumer, link)
            except Exception as error:  # noqa: BLE001 - as above
                why = f"{type(error).__name__}: {error}"[:200]
                with contextlib.suppress(Exception):
                    consumer.close()
                self.tell(Down(self._name, link, time.monotonic(), why))

    def _take(self, consumer: Consumer, link: int) -> None:
        taken = consumer.take()
        for each in taken:
            got = Got(self._name, each.ident, each.at, each.marked, link, each.held_until)
            self.tell(got)
        if not taken:
            return
        began = time.monotonic()
        try:
            sure = consumer.ack(taken)
        except Exception:
            # Perhaps it was stored: what comes after it may come.
            for each in taken:
                self.tell(Acked(self._name, each.ident, began, time.monotonic(), sure=False))
            raise
        for each in taken:
            self.tell(Acked(self._name, each.ident, began, time.monotonic(), sure=sure))

    def _connected(self, make: Callable[..., T], first: int) -> Iterator[T]:
        """Connections, each to the next gateway that takes one."""
        told = ""
        for turn in itertools.count(first):
            ports = self._gateways[turn % len(self._gateways)]
            try:
                yield make(ports, self._topic, self._name)
            except Exception as error:  # noqa: BLE001 - as above
                why = f"no connection: {type(error).__name__}: {error}"[:200]
                if why != told:
                    self._note(why)
                told = why
                time.sleep(AGAIN_SECONDS)


def main() -> None:
    name, topic, gateways = sys.argv[1:]
    load = Load(name, LANES[name], topic, json.loads(gateways), os.dup(1))
    # Libraries may print; the history is nobody's but ours.
    os.dup2(2, 1)
    for work in (load.publish, load.consume):
        threading.Thread(target=work, name=work.__name__, daemon=True).start()
    for line in sys.stdin:
        if line.strip() == "halt":
            load.halted.set()
    # Threads of some libraries never end.
    os._exit(0)


if __name__ == "__main__":
    main()
