"""The HTTP side: signatures, rights, Query, bounds, drain; against a whole service."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from urllib.error import HTTPError
from urllib.parse import urlencode

import boto3
import botocore.session
import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from adapters.base import ListenerAddress
from adapters.sqs import server
from adapters.sqs.actions.table import PERFORM
from adapters.sqs.codec.shapes import ACTIONS
from adapters.sqs.http import request_response as http
from adapters.sqs.settings import HEAD_BYTES_MAX, SqsSettings
from auth.principal import SignInMode
from auth.private_files.certificates import open_loopback_certificate
from auth.private_files.tls import server_context
from tests.adapters.in_process import KEY_ID, SECRET
from tests.adapters.sqs.query_model import write_data_path
from tests.adapters.sqs.service import REGION, Service, running_service, service_in_thread
from tests.sqs_client import sqs_client


def code_of(caught) -> str:
    return caught.value.response["Error"]["Code"]


def get(url: str, headers=None, data: bytes | None = None):
    """(status, headers, body), whatever the status."""
    request = urllib.request.Request(url, data, headers or {})
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, response.headers, response.read()
    except HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def signed(url: str, body: bytes, secret: str = SECRET, **headers: str) -> dict[str, str]:
    """Headers of a signed POST."""
    request = AWSRequest("POST", url, data=body, headers=headers)
    SigV4Auth(Credentials(KEY_ID, secret), "sqs", REGION).add_auth(request)
    return dict(request.headers.items())


def json_call(url: str, action: str, **params: object):
    """A signed call of AWS JSON, as (status, headers, body)."""
    body = json.dumps(params).encode()
    headers = {
        "X-Amz-Target": f"AmazonSQS.{action}",
        "Content-Type": "application/x-amz-json-1.0",
    }
    return get(url, signed(url, body, **headers), body)


def test_every_action_of_the_model_is_in_the_table() -> None:
    assert PERFORM.keys() == ACTIONS.keys()


# --- signatures and rights ---------------------------------------------------------------------


def test_a_wrong_secret_is_refused(service: Service) -> None:
    client = service.client(secret="wrong")
    with pytest.raises(ClientError) as caught:
        client.list_queues()
    client.close()
    assert code_of(caught) == "SignatureDoesNotMatch"
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403


def test_an_unknown_access_key_is_refused(service: Service) -> None:
    client = service.client(key_id="nobody")
    with pytest.raises(ClientError) as caught:
        client.list_queues()
    client.close()
    assert code_of(caught) == "InvalidClientTokenId"


def test_a_request_without_signature_is_refused(service: Service) -> None:
    status, _, body = get(f"{service.url}/?Action=ListQueues")
    assert status == 403
    assert b"<Code>MissingAuthenticationToken</Code>" in body


def test_an_old_signature_is_refused(service: Service, sqs) -> None:
    service.clock.wall_ahead_ms += 16 * 60_000
    try:
        with pytest.raises(ClientError) as caught:
            sqs.list_queues()
    finally:
        service.clock.wall_ahead_ms -= 16 * 60_000
    assert code_of(caught) == "RequestExpired"


def test_a_user_may_do_what_its_policy_says_and_nothing_else(sqs, reader, make_queue) -> None:
    url = make_queue(name="for-reading")
    sqs.send_message(QueueUrl=url, MessageBody="x")
    (message,) = reader.receive_message(QueueUrl=url, MessageSystemAttributeNames=["SenderId"])[
        "Messages"
    ]
    assert message["Attributes"] == {"SenderId": "guest"}
    reader.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert url in reader.list_queues()["QueueUrls"]
    for refused, call in (
        ("sqs:sendmessage", lambda: reader.send_message(QueueUrl=url, MessageBody="x")),
        ("sqs:deletequeue", lambda: reader.delete_queue(QueueUrl=url)),
        ("sqs:createqueue", lambda: reader.create_queue(QueueName="theirs")),
        ("sqs:tagqueue", lambda: reader.tag_queue(QueueUrl=url, Tags={"a": "b"})),
    ):
        with pytest.raises(ClientError) as caught:
            call()
        assert code_of(caught) == "AccessDenied"
        assert refused in str(caught.value)
    with pytest.raises(ClientError) as caught:
        reader.send_message(QueueUrl=f"{url}-missing", MessageBody="x")
    assert code_of(caught) == "AccessDenied", "rights come before existence"


def test_a_pre_signed_get_works(service: Service, make_queue) -> None:
    make_queue(name="pre-signed")
    query = urlencode({"Action": "GetQueueUrl", "QueueName": "pre-signed"})
    request = AWSRequest("GET", f"{service.url}/?{query}")
    SigV4QueryAuth(Credentials(KEY_ID, SECRET), "sqs", REGION, expires=60).add_auth(request)
    status, _, body = get(request.url)
    assert status == 200
    assert f"<QueueUrl>{service.url}/000000000000/pre-signed</QueueUrl>".encode() in body


@pytest.mark.parametrize(
    ("mode", "key", "code"),
    [
        (SignInMode.OFF, "anybody", None),
        (SignInMode.IDENTIFY, KEY_ID, None),
        (SignInMode.IDENTIFY, "anybody", "InvalidClientTokenId"),
    ],
)
def test_signatures_can_be_left_unchecked(tmp_path, mode, key, code) -> None:
    with service_in_thread(tmp_path, SqsSettings(sign_in=mode)) as service:
        client = service.client(key_id=key, secret="whatever")
        try:
            if code is not None:
                with pytest.raises(ClientError) as caught:
                    client.create_queue(QueueName="open")
                assert code_of(caught) == code
                return
            url = client.create_queue(QueueName="open")["QueueUrl"]
            client.send_message(QueueUrl=url, MessageBody="x")
            (message,) = client.receive_message(
                QueueUrl=url, MessageSystemAttributeNames=["SenderId"]
            )["Messages"]
            sender = "000000000000" if mode is SignInMode.OFF else "guest"
            assert message["Attributes"]["SenderId"] == sender
        finally:
            client.close()


# --- the Query protocol ------------------------------------------------------------------------


def test_the_query_protocol_of_older_sdks(service: Service, tmp_path) -> None:
    core = botocore.session.Session()
    core.get_component("data_loader").search_paths.insert(0, str(write_data_path(tmp_path)))
    client = boto3.Session(botocore_session=core).client(
        "sqs",
        endpoint_url=service.url,
        region_name=REGION,
        aws_access_key_id=KEY_ID,
        aws_secret_access_key=SECRET,
    )
    before = service.adapter.statistics().counters["requests_query"]
    url = client.create_queue(QueueName="queried", Attributes={"DelaySeconds": "0"})["QueueUrl"]
    client.send_message(QueueUrl=url, MessageBody="a\r\nb <&>")
    (message,) = client.receive_message(QueueUrl=url)["Messages"]
    assert message["Body"] == "a\r\nb <&>"
    client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    with pytest.raises(ClientError) as caught:
        client.get_queue_url(QueueName="not-there")
    client.close()
    assert code_of(caught) == "AWS.SimpleQueueService.NonExistentQueue"
    assert "for this wsdl version" in str(caught.value)
    assert service.adapter.statistics().counters["requests_query"] == before + 5


# --- HTTP --------------------------------------------------------------------------------------


def test_errors_carry_what_sdks_need(service: Service) -> None:
    status, headers, body = json_call(service.url + "/", "GetQueueUrl", QueueName="no-queue")
    assert status == 400
    assert headers["x-amzn-query-error"] == "AWS.SimpleQueueService.NonExistentQueue;Sender"
    assert headers["x-amzn-RequestId"]
    assert headers["Date"]
    assert json.loads(body)["__type"] == "com.amazonaws.sqs#QueueDoesNotExist"


def test_queue_urls_have_the_host_of_the_request_if_it_is_one(service: Service, make_queue) -> None:
    make_queue(name="hosted")
    url = service.url + "/"
    body = json.dumps({"QueueName": "hosted"}).encode()
    for host, expected in (
        ("queues.example.org:8080", "http://queues.example.org:8080"),
        ("<odd>", service.url),
    ):
        headers = signed(
            url,
            body,
            Host=host,
            **{"X-Amz-Target": "AmazonSQS.GetQueueUrl"},
        )
        _, _, answer = get(url, headers, body)
        assert json.loads(answer) == {"QueueUrl": f"{expected}/000000000000/hosted"}


@pytest.mark.parametrize("advertised", ["https://queues.example.org", "queues.example.org"])
def test_queue_urls_can_be_told_from_outside(tmp_path, advertised: str) -> None:
    with service_in_thread(tmp_path, SqsSettings(advertised={"http": advertised})) as service:
        client = service.client()
        url = client.create_queue(QueueName="q")["QueueUrl"]
        assert url == ("https" if "://" in advertised else "http") + (
            "://queues.example.org/000000000000/q"
        )
        client.send_message(QueueUrl=url, MessageBody="boto3 keeps to its endpoint")
        client.close()


def test_the_trace_header_of_the_request_is_kept(service: Service, sqs, make_queue) -> None:
    url = make_queue()
    trace = "Root=1-5759e988-bd862e3fe1be46a994272793"
    body = json.dumps({"QueueUrl": url, "MessageBody": "x"}).encode()
    headers = signed(service.url + "/", body, **{"X-Amz-Target": "AmazonSQS.SendMessage"})
    status, _, answer = get(service.url + "/", headers | {"X-Amzn-Trace-Id": trace}, body)
    assert status == 200
    assert "MD5OfMessageSystemAttributes" not in json.loads(answer)
    (message,) = sqs.receive_message(QueueUrl=url, MessageSystemAttributeNames=["AWSTraceHeader"])[
        "Messages"
    ]
    assert message["Attributes"] == {"AWSTraceHeader": trace}


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_over_the_limit_is_refused_in_the_protocol_it_came_in(
    service: Service, is_chunked: bool
) -> None:
    size = http.REQUEST_BYTES_MAX + 1024
    length = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: %d" % size
    chunk = b"%x\r\n" % size if is_chunked else b""
    head = b"POST / HTTP/1.1\r\nHost: h\r\nX-Amz-Target: AmazonSQS.SendMessage\r\n%b\r\n\r\n%b"
    with socket.create_connection(("127.0.0.1", service.port)) as peer:
        peer.sendall(head % (length, chunk))
        # The whole body is sent before the answer is looked at, as some clients do.
        peer.sendall(b"x" * size)
        answer = read_all(peer)
    head_lines, _, body = answer.partition(b"\r\n\r\n")
    assert b"connection: close" in head_lines
    kind = json.loads(body)["__type"].rpartition("#")[2]
    if is_chunked:
        # How long it is cannot be known, that it has no signature can.
        assert head_lines.startswith(b"HTTP/1.1 403 ")
        assert kind == "MissingAuthenticationTokenException"
    else:
        assert head_lines.startswith(b"HTTP/1.1 413 ")
        assert kind == "RequestEntityTooLargeException"


def read_all(peer: socket.socket) -> bytes:
    """What comes until the server has nothing more to say."""
    peer.settimeout(10)
    answer = b""
    while chunk := peer.recv(65_536):
        answer += chunk
    return answer


def test_headers_without_end_are_refused(service: Service) -> None:
    with socket.create_connection(("127.0.0.1", service.port)) as peer:
        peer.sendall(b"GET / HTTP/1.1\r\n" + b"a: bbbbbbbb\r\n" * (HEAD_BYTES_MAX // 4))
        assert read_all(peer).startswith(b"HTTP/1.1 431 ")


GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"


def signed_head(service: Service, length: int, *more: bytes, secret: str = "another") -> bytes:
    """A head that nothing can be said against before the body has come."""
    headers = signed(service.url + "/", b"{}", secret)
    lines = [f"{name}: {value}".encode() for name, value in headers.items() if name != "Host"]
    host = b"Host: 127.0.0.1:%d" % service.port
    return b"\r\n".join(
        [b"POST / HTTP/1.1", host, *lines, b"Content-Length: %d" % length, *more, b"", b""]
    )


ASKS_FIRST = b"Expect: 100-continue"


def test_a_long_pipeline_is_answered_to_its_end(service: Service) -> None:
    last = GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    with socket.create_connection(("127.0.0.1", service.port)) as peer:
        sender = threading.Thread(target=peer.sendall, args=(GET * 1999 + last,))
        sender.start()
        answers = read_all(peer).count(b"HTTP/1.1 403 ")
        sender.join()
    assert answers == 2000


def test_a_request_before_a_fault_is_answered_first(service: Service) -> None:
    with socket.create_connection(("127.0.0.1", service.port)) as peer:
        peer.sendall(GET + b"nonsense\r\n\r\n" + GET)
        answer = read_all(peer)
    assert answer.count(b"HTTP/1.1 ") == 2
    assert answer.index(b"HTTP/1.1 403 ") < answer.index(b"HTTP/1.1 400 ")


def test_leave_to_send_waits_for_the_answer_before(service: Service) -> None:
    with socket.create_connection(("127.0.0.1", service.port)) as peer:
        peer.settimeout(10)
        peer.sendall(GET + signed_head(service, 2, ASKS_FIRST))
        answer = b""
        while b" 100 Continue" not in answer:
            answer += peer.recv(65_536)
        assert answer.index(b" 403 ") < answer.index(b" 100 ")
        peer.sendall(b"{}")
        assert peer.recv(65_536).startswith(b"HTTP/1.1 403 ")


def test_what_is_no_http_is_answered_so(service: Service) -> None:
    with socket.create_connection(("127.0.0.1", service.port)) as peer:
        peer.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        assert read_all(peer).startswith(b"HTTP/1.1 400 ")


def test_a_client_that_asks_first_is_told_to_continue(service: Service) -> None:
    with socket.create_connection(("127.0.0.1", service.port)) as peer:
        peer.sendall(signed_head(service, 2, ASKS_FIRST))
        assert peer.recv(65_536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        peer.sendall(b"{}")
        assert peer.recv(65_536).startswith(b"HTTP/1.1 403 ")


def test_requests_in_a_pipeline_are_answered_in_order(service: Service, make_queue) -> None:
    make_queue(name="piped")
    with socket.create_connection(("127.0.0.1", service.port)) as peer:
        one = b"GET /?Action=A HTTP/1.1\r\nHost: x\r\n\r\n"
        last = b"GET /?Action=B HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        peer.sendall(one * 3 + last)
        answer = b""
        while chunk := peer.recv(65_536):
            answer += chunk
    assert answer.count(b"HTTP/1.1 403 ") == 4


UNSIGNED = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n"


@pytest.mark.parametrize("asks", [b"", ASKS_FIRST + b"\r\n"])
def test_an_unsigned_request_is_refused_before_its_body(service: Service, asks: bytes) -> None:
    with socket.create_connection(("127.0.0.1", service.port)) as peer:
        peer.sendall(UNSIGNED + asks + b"\r\n" + (b"" if asks else b"x" * 100_000))
        answer = read_all(peer)
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"connection: close" in answer


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (lambda head: head.replace(KEY_ID.encode(), b"AKIASTRANGER"), "InvalidClientTokenId"),
        (lambda head: re.sub(rb"20\d{6}", b"20010101", head), "too far from this server"),
    ],
    ids=["an unknown key", "a date of 2001"],
)
def test_what_the_head_says_wrong_is_refused_before_the_body(
    service: Service, wrong: Callable[[bytes], bytes], code: str
) -> None:
    with socket.create_connection(("127.0.0.1", service.port)) as peer:
        peer.sendall(wrong(signed_head(service, 1_000_000, secret=SECRET)))
        answer = read_all(peer)
    assert answer.startswith((b"HTTP/1.1 403 ", b"HTTP/1.1 400 "))
    assert code.encode() in answer


async def test_a_client_that_stalls_is_closed(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(server, "REQUEST_S_MAX", 0)
    async with running_service(tmp_path) as service:
        for beginning in (
            b"",
            b"GET / HT",
            signed_head(service, 10) + b"half",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
            writer.write(beginning)
            async with asyncio.timeout(5):
                try:
                    answer = await reader.read()
                    assert answer.startswith(b"HTTP/1.1 408 ") if beginning else answer == b""
                except ConnectionResetError:
                    pass
            writer.close()
        assert service.adapter.statistics().counters["connections_refused"] == 3


async def test_an_idle_connection_is_closed(tmp_path) -> None:
    async with running_service(tmp_path, SqsSettings(idle_timeout_s=0)) as service:
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        writer.write(GET)
        async with asyncio.timeout(5):
            try:
                assert (await reader.read()).startswith(b"HTTP/1.1 403 ")
            except ConnectionResetError:
                pass
        writer.close()
        assert service.adapter.statistics().counters["connections_refused"] == 0


async def test_connections_over_the_limit_are_closed(tmp_path) -> None:
    async with running_service(tmp_path, SqsSettings(connections_max=2)) as service:
        kept = [await asyncio.open_connection("127.0.0.1", service.port) for _ in range(2)]
        await _until(lambda: service.adapter.statistics().connections == 2)
        _, writer = await asyncio.open_connection("127.0.0.1", service.port)
        async with asyncio.timeout(5):
            try:
                assert await kept[0][0].read() == b"", "the oldest that has signed nothing"
            except ConnectionResetError:
                pass
        assert service.adapter.statistics().counters["connections_refused"] == 1
        writer.close()
        await _until(lambda: service.adapter.statistics().connections == 1)
        for _, open_writer in kept:
            open_writer.close()


async def _until(holds) -> None:
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.01)


def test_https(tmp_path) -> None:
    files = open_loopback_certificate(tmp_path / "tls", datetime.now(UTC))
    listeners = [ListenerAddress("https", "127.0.0.1", 0, server_context(files))]
    with service_in_thread(tmp_path / "data", listeners=listeners) as service:
        url = f"https://127.0.0.1:{service.port}"
        client = sqs_client(url, KEY_ID, SECRET, region=REGION, verify=str(files.certificate))
        queue = client.create_queue(QueueName="q")["QueueUrl"]
        assert queue == f"{url}/000000000000/q"
        client.send_message(QueueUrl=queue, MessageBody="x" * 1_000_000)
        (message,) = client.receive_message(QueueUrl=queue)["Messages"]
        assert len(message["Body"]) == 1_000_000
        client.close()


async def test_a_port_that_is_taken_is_an_error_of_the_start(tmp_path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = ListenerAddress("taken", "127.0.0.1", other.getsockname()[1])
        free = ListenerAddress("free", "127.0.0.1", 0)
        with pytest.raises(OSError, match="in use"):
            async with running_service(tmp_path, listeners=[free, taken]):
                pass


# --- the end -----------------------------------------------------------------------------------


def test_a_drain_answers_long_polls_and_lets_clients_go(tmp_path) -> None:
    with service_in_thread(tmp_path) as service:
        client = service.client()
        url = client.create_queue(QueueName="drained")["QueueUrl"]
        answers: list[object] = []
        polls = [
            threading.Thread(
                target=lambda: answers.append(
                    client.receive_message(QueueUrl=url, WaitTimeSeconds=20).get("Messages")
                )
            )
            for _ in range(3)
        ]
        for poll in polls:
            poll.start()
        while service.adapter.statistics().gauges["long_polls"] < 3:
            time.sleep(0.01)
        start = time.monotonic()
        service.run(service.adapter.drain)
        for poll in polls:
            poll.join(5)
        assert time.monotonic() - start < 2
        assert answers == [None, None, None]
        assert service.adapter.statistics().connections == 0
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", service.port))
        client.close()


def test_a_client_that_goes_away_does_not_take_a_message_with_it(service, sqs, make_queue) -> None:
    url = make_queue()
    body = json.dumps({"QueueUrl": url, "WaitTimeSeconds": 20}).encode()
    headers = signed(service.url + "/", body, **{"X-Amz-Target": "AmazonSQS.ReceiveMessage"})
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"POST / HTTP/1.1\r\nHost: 127.0.0.1:{service.port}\r\n{lines}"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    with socket.create_connection(("127.0.0.1", service.port)) as peer:
        peer.sendall(request)
        while not service.adapter.statistics().gauges["long_polls"]:
            time.sleep(0.01)
    while service.adapter.statistics().gauges["long_polls"]:
        time.sleep(0.01)
    sqs.send_message(QueueUrl=url, MessageBody="still here")
    (message,) = sqs.receive_message(
        QueueUrl=url, MessageSystemAttributeNames=["ApproximateReceiveCount"]
    )["Messages"]
    assert message["Attributes"] == {"ApproximateReceiveCount": "1"}
    assert service.adapter.statistics().counters["polls_abandoned"] == 1


def test_a_send_needs_no_task(service: Service, sqs, make_queue, monkeypatch) -> None:
    url = make_queue()
    started: list[str] = []
    start = service.adapter.tasks.start

    def count(work):
        started.append(work.__name__)
        return start(work)

    monkeypatch.setattr(service.adapter.tasks, "start", count)
    sqs.send_message(QueueUrl=url, MessageBody="one")
    entries = [{"Id": "a", "MessageBody": "two"}, {"Id": "b", "MessageBody": "\x01"}]
    sent = sqs.send_message_batch(QueueUrl=url, Entries=entries)
    assert [len(sent["Successful"]), len(sent["Failed"])] == [1, 1]
    nothing = sqs.send_message_batch(QueueUrl=url, Entries=entries[1:])
    assert [each["Id"] for each in nothing["Failed"]] == ["b"]
    with pytest.raises(ClientError, match="does not exist"):
        sqs.send_message(QueueUrl=f"{url}-missing", MessageBody="x")
    assert started == []
    assert sqs.receive_message(QueueUrl=url)["Messages"]
    assert len(started) == 1
