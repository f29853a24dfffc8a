"""A loopback HTTP server around the codecs, and a whole service, for real clients to talk to."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from adapters.sqs.codec import request_protocol as wire
from adapters.sqs.codec.shape_base import Shape
from adapters.sqs.codec.shapes import Call
from adapters.sqs.error_codes import SqsError
from adapters.sqs.http.request_response import HttpRequest
from tests.adapters.in_process import READER_KEY_ID, READER_SECRET
from tests.adapters.sqs.service import Service, service_in_thread
from tests.sqs_client import sqs_client

REQUEST_ID = "7a62c49f-347e-4fc4-9331-6e8e7a96aa73"

Answer = Callable[[Call], Shape | None]


class Loopback:
    """Decodes each request, answers with `answer`, keeps calls and raw requests."""

    def __init__(self) -> None:
        self.url = ""
        self.answer: Answer = lambda call: None
        self.calls: list[Call] = []
        self.requests: list[HttpRequest] = []

    def handle(self, request: HttpRequest):
        self.requests.append(request)
        protocol = wire.select(request)
        try:
            call = protocol.decode(request)
            self.calls.append(call)
            return protocol.encode_result(call.action, self.answer(call), REQUEST_ID)
        except SqsError as error:
            return protocol.encode_error(error, REQUEST_ID)


def _handler(loopback: Loopback) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            path, _, query = self.path.partition("?")
            length = int(self.headers.get("content-length", 0))
            headers = [
                (name.lower().encode(), value.encode()) for name, value in self.headers.items()
            ]
            response = loopback.handle(
                HttpRequest(
                    self.command, path.encode(), query.encode(), headers, self.rfile.read(length)
                )
            )
            self.send_response(response.status)
            for name, value in response.headers:
                self.send_header(name.decode(), value.decode())
            self.end_headers()
            self.wfile.write(response.body)

        do_GET = _serve
        do_POST = _serve

        def log_message(self, *args: object) -> None:
            pass

    return Handler


@pytest.fixture
def loopback() -> Iterator[Loopback]:
    loopback = Loopback()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(loopback))
    server.daemon_threads = True
    loopback.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield loopback
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def json_client(loopback: Loopback):
    client = sqs_client(loopback.url)
    yield client
    client.close()


@pytest.fixture(scope="module")
def service(tmp_path_factory) -> Iterator[Service]:
    """One service for a file of tests; `make_queue` gives each its own queues."""
    with service_in_thread(tmp_path_factory.mktemp("data")) as service:
        yield service


@pytest.fixture
def sqs(service: Service):
    client = service.client()
    yield client
    client.close()


@pytest.fixture
def reader(service: Service):
    """A client whose user may receive and inspect only."""
    client = service.client(READER_KEY_ID, READER_SECRET)
    yield client
    client.close()


_numbers = itertools.count(1)


@pytest.fixture
def make_queue(sqs):
    """Creates a queue of a name not used yet, with attributes as they are given; its URL."""

    def make(*, fifo: bool = False, name: str | None = None, **attributes: str) -> str:
        name = name or f"queue-{next(_numbers)}"
        if fifo:
            name += ".fifo"
            attributes["FifoQueue"] = "true"
        return sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]

    return make
