"""Queue names, queue URLs and ARNs.

https://host:9324/000000000000/orders          URL: account and name are its last two parts
arn:aws:sqs:eu-central-1:000000000000:orders   ARN: the region is the request's

Regions part no queues (docs/design/model.md#topics-and-queues).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from . import error_codes as errors
from .error_codes import SqsError

QUEUE_NAME_CHARS_MAX = 80
"""AWS's limit, `.fifo` counted."""
QUEUE_URL_CHARS_MAX = 2048
"""Longer than any host, account and name; bounds the text we look at and quote back."""
URLS_KEPT_MAX = 1024
"""Parsed URLs kept: clients send the same few over and over; at most 2 MiB of text."""
FIFO_SUFFIX = ".fifo"

_STEM = re.compile(r"[A-Za-z0-9_-]+")
_ACCOUNT = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ARN = re.compile(r"arn:([a-z0-9-]+):([a-z0-9-]+):([a-z0-9-]*):([A-Za-z0-9_-]*):(.+)")


@dataclass(frozen=True, slots=True)
class QueueAddress:
    """Whose queue, and its name."""

    account: str
    name: str


@dataclass(frozen=True, slots=True)
class QueueArn:
    partition: str
    service: str
    region: str
    account: str
    name: str


def is_fifo(name: str) -> bool:
    """True if a queue of this name is a FIFO queue."""
    return name.endswith(FIFO_SUFFIX)


def is_queue_name(name: str) -> bool:
    """True if SQS can spell this name, which may be that of another protocol's queue."""
    return (
        len(name) <= QUEUE_NAME_CHARS_MAX
        and _STEM.fullmatch(name.removesuffix(FIFO_SUFFIX)) is not None
    )


def check_new_queue_name(name: str, *, fifo: bool) -> None:
    """Check the name given to CreateQueue; `fifo`: the attribute FifoQueue is true.

    Raises InvalidParameterValue.
    """
    if name and is_queue_name(name) and is_fifo(name) == fifo:
        return
    if not name:
        message = "Queue name cannot be empty"
    elif fifo:
        message = (
            "The name of a FIFO queue can only include alphanumeric characters, hyphens, or "
            "underscores, must end with .fifo suffix and be 1 to 80 in length."
        )
    else:
        message = (
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
        )
    raise SqsError(errors.INVALID_PARAMETER_VALUE, message)


def is_account(text: str) -> bool:
    """Whether queue URLs and ARNs can hold an account: AWS's 12 digits, or most tenants' names."""
    return _ACCOUNT.fullmatch(text) is not None


def queue_url(base_url: str, address: QueueAddress) -> str:
    """URL of a queue below `base_url`, e.g. `http://127.0.0.1:9324`."""
    return f"{base_url}/{address.account}/{address.name}"


def _invalid_address(address: str) -> SqsError:
    message = f"The address {address} is not valid for this endpoint."
    return SqsError(errors.INVALID_ADDRESS, message)


@lru_cache(maxsize=URLS_KEPT_MAX)
def parse_queue_url(url: str) -> QueueAddress:
    """Account and name in a queue URL, or in its path alone; a bare name is of the account of its
    caller, which is empty here. The host is not looked at.

    Raises QueueDoesNotExist for what can name no queue, as AWS does.
    """
    *front, name = url.rsplit("/", 2)
    account = front[-1] if front else ""
    if (
        len(url) > QUEUE_URL_CHARS_MAX
        or len(front) == 1
        or not is_queue_name(name)
        or (front and not _ACCOUNT.fullmatch(account))
    ):
        raise SqsError(errors.QUEUE_DOES_NOT_EXIST)
    return QueueAddress(account, name)


def queue_path(raw_path: bytes) -> str | None:
    """`/<account>/<queue>` if that is the path of a request, None for `/`.

    Raises InvalidAddress for any other path.
    """
    parts = raw_path.strip(b"/").split(b"/")
    if parts == [b""]:
        return None
    address = raw_path.decode("ascii", "replace")
    if len(parts) != 2 or not raw_path.isascii():
        raise _invalid_address(address)
    return "/" + address.strip("/")


def queue_arn(region: str, address: QueueAddress) -> str:
    """ARN of a queue."""
    return f"arn:aws:sqs:{region}:{address.account}:{address.name}"


def parse_arn(arn: str) -> QueueArn | None:
    """Parts of an ARN of any service; None for what is not an ARN."""
    match = _ARN.fullmatch(arn)
    return QueueArn(*match.groups()) if match else None
