from __future__ import annotations

import pytest

from adapters.sqs import error_codes as errors
from adapters.sqs import names
from adapters.sqs.error_codes import SqsError
from adapters.sqs.names import QueueAddress, QueueArn


@pytest.mark.parametrize("name", ["a", "A-b_9", "x" * 80, "a.fifo", "x" * 75 + ".fifo"])
def test_names_that_sqs_can_spell(name: str) -> None:
    assert names.is_queue_name(name)


@pytest.mark.parametrize(
    "name", ["", ".fifo", "x" * 81, "x" * 76 + ".fifo", "a.b", "a/b", "é", "a\n", "a.fifo.fifo"]
)
def test_names_that_sqs_cannot_spell(name: str) -> None:
    assert not names.is_queue_name(name)


@pytest.mark.parametrize(
    ("name", "fifo", "message"),
    [
        ("", False, "Queue name cannot be empty"),
        (
            "a.fifo",
            False,
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length",
        ),
        (
            "in.fo",
            False,
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length",
        ),
        (
            "a",
            True,
            (
                "The name of a FIFO queue can only include alphanumeric characters, hyphens, or "
                "underscores, must end with .fifo suffix and be 1 to 80 in length."
            ),
        ),
    ],
)
def test_a_wrong_name_for_a_new_queue(name: str, fifo: bool, message: str) -> None:
    with pytest.raises(SqsError) as caught:
        names.check_new_queue_name(name, fifo=fifo)
    assert caught.value.kind is errors.INVALID_PARAMETER_VALUE
    assert caught.value.message == message


def test_right_names_for_new_queues() -> None:
    names.check_new_queue_name("orders", fifo=False)
    names.check_new_queue_name("orders.fifo", fifo=True)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9324/000000000000/orders.fifo",
        "https://proxy.example/sqs/000000000000/orders.fifo",
        "/000000000000/orders.fifo",
    ],
)
def test_a_queue_url_is_read_whatever_its_host(url: str) -> None:
    assert names.parse_queue_url(url) == QueueAddress("000000000000", "orders.fifo")


def test_a_queue_url_is_made_and_read_again() -> None:
    address = QueueAddress("000000000000", "orders")
    url = names.queue_url("http://127.0.0.1:9324", address)
    assert url == "http://127.0.0.1:9324/000000000000/orders"
    assert names.parse_queue_url(url) == address


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/",
        "000000000000/orders",
        "http://h//orders",
        "http://h/0 0/orders",
        "x" * 3000 + "/000000000000/orders",
        "x" * 81,
        "a.b",
        "http://h/000000000000/",
        "http://h/000000000000/a.b",
    ],
)
def test_what_is_not_a_queue_url(url: str) -> None:
    with pytest.raises(SqsError) as caught:
        names.parse_queue_url(url)
    assert caught.value.kind is errors.QUEUE_DOES_NOT_EXIST


@pytest.mark.parametrize("name", ["orders", "orders.fifo"])
def test_a_bare_name_is_of_the_callers_account(name: str) -> None:
    assert names.parse_queue_url(name) == QueueAddress("", name)


def test_arns() -> None:
    arn = names.queue_arn("eu-central-1", QueueAddress("000000000000", "orders"))
    assert arn == "arn:aws:sqs:eu-central-1:000000000000:orders"
    assert names.parse_arn(arn) == QueueArn("aws", "sqs", "eu-central-1", "000000000000", "orders")
    assert names.parse_arn("arn:aws-cn:sns:r:1:t:sub") == QueueArn(
        "aws-cn", "sns", "r", "1", "t:sub"
    )
    for wrong in ("", "dummy", "arn:aws:sqs:r:0", "arn:aws:sqs:r:0:"):
        assert names.parse_arn(wrong) is None
