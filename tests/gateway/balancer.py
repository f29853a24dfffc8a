"""A balancer as operators have one: TCP, new connections go to the first gateway that is ready."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import threading
from typing import TYPE_CHECKING

from tests.gateway.serving import Process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

CHUNK_BYTES = 64 * 1024


def is_ready(gateway: Process) -> bool:
    address = re.sub("^http://", "", gateway.admin_url)
    connection = http.client.HTTPConnection(address, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


class Balancer(Process):
    """To clients, a process that listens."""

    def __init__(self, gateways: Sequence[Process], listeners: Sequence[str]) -> None:
        self._gateways = gateways
        self._sockets = {name: socket.create_server(("127.0.0.1", 0)) for name in listeners}
        self.listeners = {name: each.getsockname()[1] for name, each in self._sockets.items()}
        self._threads: list[threading.Thread] = []
        self._open: list[socket.socket] = []
        for name, each in self._sockets.items():
            self._begin(self._accept, name, each)

    def _begin(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, name: str, listening: socket.socket) -> None:
        with contextlib.suppress(OSError):  # closed at the end
            while True:
                client, _ = listening.accept()
                self._open.append(client)
                self._begin(self._carry, name, client)

    def _carry(self, name: str, client: socket.socket) -> None:
        ready = next((each for each in self._gateways if is_ready(each)), None)
        if ready is None:
            _end(client)
            return
        server = socket.create_connection(("127.0.0.1", ready.listeners[name]))
        self._open.append(server)
        self._begin(_pump, server, client)
        _pump(client, server)

    def close(self) -> None:
        for each in (*self._sockets.values(), *self._open):
            _end(each)
        for thread in self._threads:
            thread.join()
        for each in (*self._sockets.values(), *self._open):
            each.close()


def _end(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(CHUNK_BYTES):
            target.sendall(data)
    _end(source)
    _end(target)


@contextlib.contextmanager
def balancing(gateways: Sequence[Process], *listeners: str) -> Iterator[Balancer]:
    balancer = Balancer(gateways, listeners)
    try:
        yield balancer
    finally:
        balancer.close()
