from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.sqs.connection import encode
from adapters.sqs.http.request_reader import (
    HEADERS_MAX,
    REQUEST_WIRE_BYTES_MAX,
    Arrived,
    HttpReader,
)
from adapters.sqs.http.request_response import REQUEST_BYTES_MAX, HttpRequest, HttpResponse
from adapters.sqs.settings import HEAD_BYTES_MAX

POST = (
    b"POST /000000000000/q?Action=A HTTP/1.1\r\nHost: h\r\nX-Amz-Date: now\r\n"
    b"Content-Length: 5\r\n\r\nhello"
)
CHUNKED = (
    b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n"
)
GET = b"GET /?Action=ListQueues HTTP/1.1\r\nhost: h\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"


def read(*pieces: bytes) -> list[Arrived]:
    reader = HttpReader()
    return [arrived for piece in pieces for arrived in reader.feed(piece)]


def test_a_request_is_read_as_it_was_sent() -> None:
    (arrived,) = read(POST)
    assert arrived == Arrived(
        HttpRequest(
            "POST",
            b"/000000000000/q",
            b"Action=A",
            [(b"host", b"h"), (b"x-amz-date", b"now"), (b"content-length", b"5")],
            b"hello",
        ),
        keeps_alive=True,
        is_whole=True,
    )


@given(st.lists(st.integers(0, len(POST + CHUNKED + GET + LAST)), max_size=8))
def test_requests_are_the_same_wherever_the_bytes_are_cut(cuts: list[int]) -> None:
    data = POST + CHUNKED + GET + LAST
    places = sorted({0, len(data), *cuts})
    pieces = [data[start:end] for start, end in pairwise(places)]
    arrived = read(*pieces)
    assert arrived == read(data)
    assert [each.request.body for each in arrived] == [b"hello", b"hello", b"", b""]
    assert [each.keeps_alive for each in arrived] == [True, True, True, False]


def test_what_follows_the_last_request_is_not_read() -> None:
    reader = HttpReader()
    assert len(reader.feed(LAST + GET)) == 1
    assert reader.feed(GET) == []
    assert not reader.is_midway


@pytest.mark.parametrize(
    ("head", "keeps_alive"),
    [
        (b"GET / HTTP/1.0\r\n\r\n", False),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", False),
        (b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", False),
        (b"CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\nmore", False),
    ],
)
def test_who_may_go_on(head: bytes, keeps_alive: bool) -> None:
    (arrived,) = read(head)
    assert arrived.keeps_alive is keeps_alive


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"/a/b", b"/a/b", b""),
        (b"/?a=b?c", b"/", b"a=b?c"),
        (b"http://h:1/a/b?c=d", b"/a/b", b"c=d"),
        (b"http://h", b"/", b""),
        (b"/%2F%00", b"/%2F%00", b""),
    ],
)
def test_the_target_is_left_encoded(target: bytes, path: bytes, query: bytes) -> None:
    (arrived,) = read(b"GET " + target + b" HTTP/1.1\r\nHost: h\r\n\r\n")
    assert (arrived.request.raw_path, arrived.request.query) == (path, query)


# --- what a proxy before us could read otherwise ------------------------------------------------

BODY_HEAD = b"POST / HTTP/1.1\r\nHost: h\r\n"
CHUNKED_HEAD = BODY_HEAD + b"Transfer-Encoding: chunked\r\n\r\n"

AMBIGUOUS = {
    "a length and chunks": BODY_HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    "chunks and a length": BODY_HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
    "two lengths": BODY_HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "the same length twice": BODY_HEAD + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "a list of lengths": BODY_HEAD + b"Content-Length: 5, 5\r\n\r\nhello",
    "a length with a sign": BODY_HEAD + b"Content-Length: +5\r\n\r\nhello",
    "a length below zero": BODY_HEAD + b"Content-Length: -1\r\n\r\n",
    "a length in hexadecimal": BODY_HEAD + b"Content-Length: 0x5\r\n\r\nhello",
    "no length at all": BODY_HEAD + b"Content-Length: \r\n\r\nhello",
    "a length of 80 bits": BODY_HEAD + b"Content-Length: 99999999999999999999999\r\n\r\n",
    "another coding": BODY_HEAD + b"Transfer-Encoding: gzip\r\n\r\n",
    "a coding after chunks": BODY_HEAD + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "chunks twice": BODY_HEAD + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "almost chunks": BODY_HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunks after a control": BODY_HEAD + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": CHUNKED_HEAD.replace(b"1.1", b"1.0") + b"0\r\n\r\n",
    "a blank before the colon": BODY_HEAD + b"Content-Length : 5\r\n\r\nhello",
    "a folded header": BODY_HEAD + b"A: b\r\n Content-Length: 5\r\n\r\nhello",
    "a blank before the headers": b"POST / HTTP/1.1\r\n Host: h\r\n\r\n",
    "bare line feeds": b"POST / HTTP/1.1\nHost: h\nContent-Length: 5\n\nhello",
    "a bare carriage return": BODY_HEAD + b"A: b\rContent-Length: 5\r\n\r\nhello",
    "a null in a value": BODY_HEAD + b"A: b\x00c\r\n\r\n",
    "no name": BODY_HEAD + b": b\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": BODY_HEAD + b"Host: i\r\n\r\n",
    "two hosts in HTTP/1.0": b"GET / HTTP/1.0\r\nHost: h\r\nHost: i\r\n\r\n",
    "a blank after a chunk's size": CHUNKED_HEAD + b"5 \r\nhello\r\n0\r\n\r\n",
    "a chunk's size with a prefix": CHUNKED_HEAD + b"0x5\r\nhello\r\n0\r\n\r\n",
    "a chunk's size below zero": CHUNKED_HEAD + b"-5\r\nhello\r\n0\r\n\r\n",
    "a chunk's size of 68 bits": CHUNKED_HEAD + b"fffffffffffffffff\r\nhello",
    "a chunk that goes on": CHUNKED_HEAD + b"5\r\nhello00\r\n\r\n",
    "chunks with bare line feeds": CHUNKED_HEAD + b"5\nhello\n0\n\n",
    "no chunk": CHUNKED_HEAD + b"xyz\r\n",
    "TLS": b"\x16\x03\x01",
    "a blank in the target": b"GET /a b HTTP/1.1\r\nHost: h\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


@pytest.mark.parametrize("data", AMBIGUOUS.values(), ids=AMBIGUOUS.keys())
def test_what_could_be_read_in_two_ways_is_refused(data: bytes) -> None:
    reader = HttpReader()
    assert reader.feed(POST + data + GET) == read(POST), "the requests before it are served"
    assert reader.fault is not None
    assert reader.fault.status == 400
    assert reader.feed(GET) == []
    assert not reader.is_midway
    assert not reader.awaits_continue


@pytest.mark.parametrize("data", [b"GET /\r\n\r\n", b"GET / HTTP/0.9\r\n\r\n"])
def test_an_old_version_is_refused(data: bytes) -> None:
    reader = HttpReader()
    assert reader.feed(data) == []
    assert reader.fault is not None
    assert reader.fault.status == 505


def test_trailers_add_nothing_to_the_headers() -> None:
    trailers = b"X-Amz-Target: AmazonSQS.DeleteQueue\r\nHost: evil\r\n"
    plain, with_trailers = read(CHUNKED, CHUNKED[:-2] + trailers + b"\r\n")
    assert with_trailers == plain


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_no_bytes_raise_anything(start: bytes, rest: bytes) -> None:
    for data in (start, POST[: len(start)] + rest, CHUNKED[: len(rest)] + start):
        read(data, rest)


# --- bounds ------------------------------------------------------------------------------------


def test_a_head_without_end_is_a_fault() -> None:
    reader = HttpReader()
    reader.feed(b"GET / HTTP/1.1\r\n")
    for _ in range(HEAD_BYTES_MAX // 1024):
        reader.feed(b"a: " + b"b" * 1019 + b"\r\n")
    assert reader.fault is None
    reader.feed(b"a: " + b"b" * 1019 + b"\r\n")
    assert reader.fault is not None
    assert reader.fault.status == 431


def test_the_length_of_one_head_is_not_counted_to_the_next() -> None:
    reader = HttpReader()
    for _ in range(HEAD_BYTES_MAX // len(GET) * 2):
        for part in (GET[:10], GET[10:]):
            reader.feed(part)
    head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % HEAD_BYTES_MAX
    assert len(reader.feed(head + b"x" * HEAD_BYTES_MAX + GET[:10])) == 1
    assert len(reader.feed(GET[10:])) == 1
    assert reader.fault is None


@pytest.mark.parametrize(
    ("start", "endless"),
    [(b"", b"1;" + b"e" * 4000 + b"\r\nx\r\n"), (b"0\r\n", b"a: " + b"b" * 4000 + b"\r\n")],
    ids=["chunks", "trailers"],
)
def test_framing_without_end_is_a_fault(start: bytes, endless: bytes) -> None:
    reader = HttpReader()
    reader.feed(CHUNKED_HEAD + start)
    for _ in range(REQUEST_WIRE_BYTES_MAX // len(endless)):
        reader.feed(endless)
    assert reader.fault is None
    reader.feed(endless)
    assert reader.fault is not None
    assert reader.fault.status == 413


@pytest.mark.parametrize(
    "pieces",
    [
        [BODY_HEAD + b"Content-Length: %d\r\n\r\n" % (REQUEST_BYTES_MAX + 1)],
        [
            CHUNKED_HEAD,
            *([b"10000\r\n" + b"x" * 65_536 + b"\r\n"] * 65),
        ],
    ],
)
def test_a_body_that_is_too_long_ends_its_request(pieces: list[bytes]) -> None:
    reader = HttpReader()
    arrived = [each for piece in pieces for each in reader.feed(piece)]
    assert [(each.is_whole, each.keeps_alive) for each in arrived] == [(False, False)]
    assert arrived[0].request.body == b""
    assert not reader.is_midway
    assert reader.feed(b"more") == []


def test_a_client_may_wait_for_leave_to_send() -> None:
    reader = HttpReader()
    head = BODY_HEAD + b"Content-Length: 2\r\nExpect: 100-Continue\r\n\r\n"
    assert reader.feed(head) == []
    assert reader.awaits_continue
    assert reader.is_midway
    assert len(reader.feed(b"{}")) == 1
    assert not reader.awaits_continue


def test_answers_are_http() -> None:
    response = HttpResponse(404, [(b"content-length", b"2")], b"{}")
    assert encode(response, b"today", keeps_alive=True, is_head=False) == (
        b"HTTP/1.1 404 Not Found\r\ndate: today\r\ncontent-length: 2\r\n\r\n{}"
    )
    assert encode(response, b"today", keeps_alive=False, is_head=True) == (
        b"HTTP/1.1 404 Not Found\r\ndate: today\r\ncontent-length: 2\r\nconnection: close\r\n\r\n"
    )


@pytest.mark.parametrize("pieces", [1, 7])
def test_what_is_held_of_a_request_is_known_until_it_is_complete(pieces: int) -> None:
    head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 50000\r\n\r\n"
    half = head + b"x" * 40_000
    reader = HttpReader()
    step = -(-len(half) // pieces)
    for at in range(0, len(half), step):
        assert reader.feed(half[at : at + step]) == []
    assert len(half) <= reader.unfinished_bytes < len(half) + 1_000

    assert len(reader.feed(b"x" * 10_000)) == 1
    assert reader.unfinished_bytes == 0


def test_half_a_head_counts_what_its_headers_take() -> None:
    reader = HttpReader()
    reader.feed(b"GET / HTTP/1.1\r\n" + b"a:b\r\n" * HEADERS_MAX)
    assert reader.fault is None
    assert reader.unfinished_bytes > HEADERS_MAX * 150
    reader.give_up(503, "too much")
    assert reader.unfinished_bytes == 0


def test_too_many_headers_are_refused_at_the_first_that_is_too_much() -> None:
    reader = HttpReader()
    assert reader.feed(b"GET / HTTP/1.1\r\nHost: h\r\n" + b"a:b\r\n" * (HEADERS_MAX + 1)) == []
    assert reader.fault is not None
    assert reader.fault.status == 431
    assert reader.unfinished_bytes == 0
    assert reader.feed(b"a:b\r\n\r\n") == []


def test_a_head_is_given_out_once_and_only_before_its_body() -> None:
    reader = HttpReader()
    reader.feed(b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n")
    assert reader.take_head() is None
    reader.feed(b"\r\n")
    head = reader.take_head()
    assert head is not None
    assert (head.raw_path, head.body) == (b"/a", b"")
    assert reader.take_head() is None
    assert len(reader.feed(b"abcPOST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nd")) == 2
    assert reader.take_head() is None
