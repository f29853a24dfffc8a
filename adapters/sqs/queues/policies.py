"""The three JSON documents among the queue attributes: Policy, RedrivePolicy, RedriveAllowPolicy.

AWS's texts quote the whole document, and so do these.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from .. import error_codes as errors
from .. import names
from ..error_codes import SqsError

DOCUMENT_BYTES_MAX = 8192
"""AWS's limit on a queue policy, applied to all three documents."""
POLICY_STATEMENTS_MAX = 20
SOURCE_ARNS_MAX = 10
RECEIVE_COUNT_MAX = 1000

_REDRIVE_KEYS = ("maxReceiveCount", "deadLetterTargetArn")
_PERMISSIONS = ("allowAll", "denyAll", "byQueue")


@dataclass(frozen=True, slots=True)
class RedrivePolicy:
    """After `receive_count_max` receives the next one moves the message to the target."""

    target_arn: str
    receive_count_max: int

    @property
    def target(self) -> names.QueueArn:
        """The target's ARN in parts."""
        arn = names.parse_arn(self.target_arn)
        assert arn is not None, "checked by parse_redrive_policy"
        return arn


@dataclass(frozen=True, slots=True)
class RedriveAllowPolicy:
    """Which queues may name this one as their dead-letter queue. ARNs only with `byQueue`."""

    permission: str
    source_arns: tuple[str, ...]

    def allows(self, source_arn: str) -> bool:
        """True if the queue of that ARN may send its dead letters here.

        Regions do not part queues (docs/design/model.md#topics-and-queues): an ARN with another one
        names the same queue.
        """
        if self.permission == "byQueue":
            source = _without_region(source_arn)
            return any(_without_region(arn) == source for arn in self.source_arns)
        return self.permission == "allowAll"


def check_policy(text: str) -> None:
    """Check that a Policy has the form of one. Raises InvalidAttributeValue, OverLimit."""
    document = _object(text)
    statements = document.get("Statement") if document else None
    if isinstance(statements, dict):
        statements = [statements]
    if (
        not isinstance(statements, list)
        or not statements
        or not all(isinstance(statement, dict) for statement in statements)
    ):
        message = "Invalid value for the parameter Policy."
        raise SqsError(errors.INVALID_ATTRIBUTE_VALUE, message)
    if len(statements) > POLICY_STATEMENTS_MAX:
        raise SqsError(
            errors.OVER_LIMIT,
            f"{len(statements)} statements were found in the submitted policy, max allowed is "
            f"{POLICY_STATEMENTS_MAX}",
        )


def parse_redrive_policy(text: str, *, fifo: bool) -> RedrivePolicy:
    """A RedrivePolicy; `fifo`: of a FIFO queue. That the target exists is not checked here.

    Raises InvalidParameterValue, InvalidAttributeValue.
    """
    document = _object(text)
    if document is None:
        raise SqsError(
            errors.INVALID_ATTRIBUTE_VALUE,
            "Invalid value for the parameter RedrivePolicy. Reason: Redrive policy is not a valid "
            "JSON map.",
        )
    for key in _REDRIVE_KEYS:
        if key not in document:
            reason = f"Redrive policy does not contain mandatory attribute: {key}."
            raise errors.invalid_parameter(text, "RedrivePolicy", reason)
    if len(document) > len(_REDRIVE_KEYS):
        reason = f"Only following attributes are supported: [{', '.join(_REDRIVE_KEYS)}]."
        raise errors.invalid_parameter(text, "RedrivePolicy", reason)
    return RedrivePolicy(
        _dead_letter_target(text, document["deadLetterTargetArn"], fifo=fifo),
        _receive_count(text, document["maxReceiveCount"]),
    )


def dead_letter_target_missing(text: str) -> SqsError:
    """The RedrivePolicy names a queue that does not exist."""
    return errors.invalid_parameter(text, "RedrivePolicy", "Dead letter target does not exist.")


def _receive_count(text: str, value: object) -> int:
    count: int | None = None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 10:
        count = int(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        count = value
    if count is None or not 1 <= count <= RECEIVE_COUNT_MAX:
        reason = (
            f"Invalid value for maxReceiveCount: {value}, valid values are from 1 to "
            f"{RECEIVE_COUNT_MAX} both inclusive."
        )
        raise errors.invalid_parameter(text, "RedrivePolicy", reason)
    return count


def _dead_letter_target(text: str, value: object, *, fifo: bool) -> str:
    arn = names.parse_arn(value) if isinstance(value, str) else None
    if arn is None:
        reason = "Invalid value for deadLetterTargetArn."
    elif arn.service != "sqs" or not names.is_queue_name(arn.name):
        reason = "Only SQS queues are valid resources for deadLetterTargetArn."
    elif names.is_fifo(arn.name) != fifo:
        reason = "Dead-letter queue must be same type of queue as the source.."
    else:
        return str(value)
    raise errors.invalid_parameter(text, "RedrivePolicy", reason)


def parse_redrive_allow_policy(text: str) -> RedriveAllowPolicy:
    """A RedriveAllowPolicy. Raises InvalidParameterValue, InvalidAttributeValue."""
    document = _object(text) or {}
    permission = document.get("redrivePermission")
    arns = document.get("sourceQueueArns", [])
    if (
        permission not in _PERMISSIONS
        or not set(document) <= {"redrivePermission", "sourceQueueArns"}
        or not isinstance(arns, list)
        or not all(isinstance(arn, str) for arn in arns)
    ):
        raise SqsError(
            errors.INVALID_ATTRIBUTE_VALUE,
            "Invalid value for the parameter RedriveAllowPolicy. Reason: Amazon SQS can't create "
            "the redrive allow policy, as it’s in an unsupported format.",
        )
    reason = _source_arns_fault(str(permission), len(arns))
    if reason is not None:
        reason = "Amazon SQS can't create the redrive allow policy. " + reason
        raise errors.invalid_parameter(text, "RedriveAllowPolicy", reason)
    return RedriveAllowPolicy(str(permission), tuple(arns))


def _without_region(arn: str) -> tuple[str, str, str] | str:
    parts = names.parse_arn(arn)
    return arn if parts is None else (parts.service, parts.account, parts.name)


def _source_arns_fault(permission: str, arns: int) -> str | None:
    if permission != "byQueue":
        if arns == 0:
            return None
        return (
            "To specify one or more source queue ARNs, you must set redrivePermission to byQueue."
        )
    if arns == 0:
        return (
            "When you specify the byQueue permission type, you must also specify one or more "
            "sourceQueueArns values."
        )
    if arns > SOURCE_ARNS_MAX:
        return f"The maximum number of source queue ARNs you can specify is {SOURCE_ARNS_MAX}."
    return None


def _object(text: str) -> dict[str, object] | None:
    if len(text.encode()) > DOCUMENT_BYTES_MAX:
        return None
    try:
        document = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
