"""Every error of the service, and the one exception that leaves this package's codecs and checks.

An error has two names. JSON sends the *shape* in `__type` and the *code* in the header
`x-amzn-query-error`; botocore makes the code `Error.Code` and picks the exception class by the
shape. Query sends only the code. SDK users match on the texts, so those AWS is known to send are
given exactly; where none is known the text is ours.
"""

from __future__ import annotations

from dataclasses import dataclass

QUOTED_CHARS_MAX = 8192
"""Most of what a client sent that a text quotes back: all of a policy, not all of a body."""
MESSAGE_CHARS_MAX = QUOTED_CHARS_MAX + 1024
"""Longest message sent."""

SQS = "com.amazonaws.sqs"
CORAL = "com.amazon.coral.service"
"""Name spaces of `__type`: the service's own shapes, and those of AWS's server framework."""


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """One row of the error table."""

    shape: str
    code: str
    status: int
    message: str
    """Text used when the place that raises gives none."""
    sender: bool = True
    """True: the client's fault (`Sender`); False: the server's (`Receiver`)."""
    query_message: str | None = None
    """Text in the Query protocol, where it differs."""
    namespace: str = SQS


_NAMESPACE_OF_CODES = "AWS.SimpleQueueService."


def _modelled(shape: str, message: str, code: str | None = None, status: int = 400) -> ErrorKind:
    return ErrorKind(shape, code or _NAMESPACE_OF_CODES + shape, status, message)


def _common(shape: str, code: str, status: int, message: str) -> ErrorKind:
    return ErrorKind(shape, code, status, message, namespace=CORAL)


# Errors of the service model.
QUEUE_DOES_NOT_EXIST = ErrorKind(
    "QueueDoesNotExist",
    "AWS.SimpleQueueService.NonExistentQueue",
    400,
    "The specified queue does not exist.",
    query_message="The specified queue does not exist for this wsdl version.",
)
QUEUE_NAME_EXISTS = _modelled(
    "QueueNameExists",
    "A queue already exists with the same name and a different value for an attribute",
    "QueueAlreadyExists",
)
QUEUE_DELETED_RECENTLY = _modelled(
    "QueueDeletedRecently",
    "You must wait 60 seconds after deleting a queue before you can create another with the same "
    "name.",
)
PURGE_QUEUE_IN_PROGRESS = _modelled(
    "PurgeQueueInProgress",
    "Only one PurgeQueue operation on a queue is allowed every 60 seconds.",
    status=403,
)
MESSAGE_NOT_INFLIGHT = _modelled("MessageNotInflight", "The specified message isn't in flight.")
UNSUPPORTED_OPERATION = _modelled("UnsupportedOperation", "The operation is not supported.")
EMPTY_BATCH_REQUEST = _modelled(
    "EmptyBatchRequest", "There should be at least one entry in the request."
)
TOO_MANY_ENTRIES = _modelled(
    "TooManyEntriesInBatchRequest", "Maximum number of entries per request are 10."
)
BATCH_ENTRY_IDS_NOT_DISTINCT = _modelled(
    "BatchEntryIdsNotDistinct", "Two or more batch entries in the request have the same Id."
)
BATCH_REQUEST_TOO_LONG = _modelled(
    "BatchRequestTooLong", "Batch requests cannot be longer than 1048576 bytes."
)
INVALID_BATCH_ENTRY_ID = _modelled(
    "InvalidBatchEntryId",
    "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
    "It can be at most 80 letters long.",
)
OVER_LIMIT = _modelled("OverLimit", "The action violates a limit.", "OverLimit", 403)
REQUEST_THROTTLED = _modelled(
    "RequestThrottled", "The request was denied because of a quota.", "RequestThrottled", 403
)
INVALID_SECURITY = _modelled(
    "InvalidSecurity", "The request was not signed as required.", "InvalidSecurity", 403
)
RECEIPT_HANDLE_IS_INVALID = _modelled(
    "ReceiptHandleIsInvalid",
    "The input receipt handle is not a valid receipt handle.",
    "ReceiptHandleIsInvalid",
    404,
)
INVALID_ADDRESS = _modelled(
    "InvalidAddress", "The address is not valid for this endpoint.", "InvalidAddress", 404
)
RESOURCE_NOT_FOUND = _modelled(
    "ResourceNotFoundException",
    "The resource that you specified doesn't exist.",
    "ResourceNotFoundException",
    404,
)
INVALID_ATTRIBUTE_NAME = _modelled(
    "InvalidAttributeName", "The specified attribute doesn't exist.", "InvalidAttributeName"
)
INVALID_ATTRIBUTE_VALUE = _modelled(
    "InvalidAttributeValue", "A queue attribute value is invalid.", "InvalidAttributeValue"
)
INVALID_ID_FORMAT = _modelled(
    "InvalidIdFormat", "The specified receipt handle isn't valid.", "InvalidIdFormat"
)
INVALID_MESSAGE_CONTENTS = _modelled(
    "InvalidMessageContents",
    "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | "
    "#xE000 to #xFFFD | #x10000 to #x10FFFF",
    "InvalidMessageContents",
)
KMS_ACCESS_DENIED = _modelled(
    "KmsAccessDenied", "Access to the key was denied.", "KMS.AccessDeniedException"
)
KMS_DISABLED = _modelled("KmsDisabled", "The key is disabled.", "KMS.DisabledException")
KMS_INVALID_KEY_USAGE = _modelled(
    "KmsInvalidKeyUsage", "The key is not for this use.", "KMS.InvalidKeyUsageException"
)
KMS_INVALID_STATE = _modelled(
    "KmsInvalidState", "The key's state does not allow this.", "KMS.InvalidStateException"
)
KMS_NOT_FOUND = _modelled("KmsNotFound", "The key does not exist.", "KMS.NotFoundException")
KMS_OPT_IN_REQUIRED = _modelled(
    "KmsOptInRequired", "The key needs a subscription.", "KMS.OptInRequired", 403
)
KMS_THROTTLED = _modelled("KmsThrottled", "The key service is busy.", "KMS.ThrottlingException")

# Errors outside the model that AWS sends all the same.
INVALID_PARAMETER_VALUE = _common(
    "InvalidParameterValueException", "InvalidParameterValue", 400, "A parameter is invalid."
)
MISSING_PARAMETER = _common(
    "MissingRequiredParameterException", "MissingParameter", 400, "A parameter is missing."
)
SERIALIZATION = _common(
    "SerializationException", "SerializationException", 400, "The request could not be read."
)
MALFORMED_QUERY_STRING = _common(
    "MalformedQueryString",
    "MalformedQueryString",
    404,
    "The query string contains a syntax error.",
)
REQUEST_TOO_LARGE = _common(
    "RequestEntityTooLargeException",
    "RequestEntityTooLarge",
    413,
    "The request body is longer than any valid request.",
)
UNKNOWN_OPERATION = _common(
    "UnknownOperationException", "UnknownOperationException", 404, "The request names no action."
)
"""A Query request without an action. Its body is the bare element, and XML whatever was asked."""
UNKNOWN_TARGET = _common(
    "UnknownOperationException",
    "UnknownOperationException",
    400,
    "The header X-Amz-Target names no action of this service.",
)
INVALID_ACTION = _common("InvalidAction", "InvalidAction", 400, "The action is not valid.")
MISSING_ACTION = _common(
    "MissingAction", "MissingAction", 400, "The request must contain the parameter Action."
)
MISSING_AUTHENTICATION_TOKEN = _common(
    "MissingAuthenticationTokenException",
    "MissingAuthenticationToken",
    403,
    "Request is missing Authentication Token",
)
INVALID_CLIENT_TOKEN_ID = _common(
    "UnrecognizedClientException",
    "InvalidClientTokenId",
    403,
    "The security token included in the request is invalid.",
)
INCOMPLETE_SIGNATURE = _common(
    "IncompleteSignatureException",
    "IncompleteSignature",
    400,
    "The request signature does not conform to AWS standards.",
)
SIGNATURE_DOES_NOT_MATCH = _common(
    "InvalidSignatureException",
    "SignatureDoesNotMatch",
    403,
    "The request signature we calculated does not match the signature you provided. Check your "
    "AWS Secret Access Key and signing method. Consult the service documentation for details.",
)
REQUEST_EXPIRED = _common(
    "RequestExpired",
    "RequestExpired",
    400,
    "The request's date is more than 15 minutes from the server's time, or its signature expired.",
)
ACCESS_DENIED = _common(
    "AccessDeniedException", "AccessDenied", 403, "Access to the resource is denied."
)
INTERNAL_FAILURE = ErrorKind(
    "InternalFailure",
    "InternalFailure",
    500,
    "The request processing has failed because of an unknown error, exception or failure.",
    sender=False,
    namespace=CORAL,
)
SERVICE_UNAVAILABLE = ErrorKind(
    "ServiceUnavailableException",
    "ServiceUnavailable",
    503,
    "The request has failed due to a temporary failure of the server.",
    sender=False,
    namespace=CORAL,
)

ERROR_KINDS: tuple[ErrorKind, ...] = tuple(
    kind for kind in tuple(globals().values()) if isinstance(kind, ErrorKind)
)
"""Every row above, in their order."""


class SqsError(Exception):
    """What a request was refused with. `message` is already limited in length."""

    def __init__(self, kind: ErrorKind, message: str | None = None) -> None:
        self.kind = kind
        self.message = kind.message if message is None else message[:MESSAGE_CHARS_MAX]
        super().__init__(kind, self.message)

    @property
    def query_message(self) -> str:
        """The text the Query protocol sends."""
        if self.kind.query_message is not None and self.message == self.kind.message:
            return self.kind.query_message
        return self.message


def invalid_parameter(value: object, name: str, reason: str) -> SqsError:
    """`Value <value> for parameter <name> is invalid. Reason: <reason>`."""
    quoted = str(value)[:QUOTED_CHARS_MAX]
    return SqsError(
        INVALID_PARAMETER_VALUE, f"Value {quoted} for parameter {name} is invalid. Reason: {reason}"
    )


def missing_parameter(name: str) -> SqsError:
    """`The request must contain the parameter <name>.`, code MissingParameter."""
    return SqsError(MISSING_PARAMETER, f"The request must contain the parameter {name}.")


def invalid_receipt_handle(handle: str) -> SqsError:
    """The handle is not one of ours, or not of this queue."""
    return SqsError(
        RECEIPT_HANDLE_IS_INVALID,
        f'The input receipt handle "{handle[:QUOTED_CHARS_MAX]}" is not a valid receipt handle.',
    )


def expired_receipt_handle(handle: str) -> SqsError:
    """DeleteMessage on a FIFO queue after the visibility timeout (docs/design/sqs.md)."""
    return invalid_parameter(handle, "ReceiptHandle", "The receipt handle has expired.")


def attempt_over(attempt_id: str) -> SqsError:
    """A receive is asked for again, of whose messages one was deleted or changed meanwhile."""
    return invalid_parameter(
        attempt_id,
        "ReceiveRequestAttemptId",
        "The receiveRequestAttemptId is not valid anymore since the receive call is not retryable.",
    )


def message_not_available(handle: str) -> SqsError:
    """ChangeMessageVisibility on a message that is gone or was never received by this handle."""
    return invalid_parameter(
        handle,
        "ReceiptHandle",
        "Message does not exist or is not available for visibility timeout change.",
    )


def visibility_beyond_limit(timeout_s: int) -> SqsError:
    """The change would keep the message in flight for over 12 hours since it was received."""
    return invalid_parameter(
        timeout_s,
        "VisibilityTimeout",
        "Total VisibilityTimeout for the message is beyond the limit [43200 seconds].",
    )


def purge_in_progress(queue_name: str) -> SqsError:
    """Second PurgeQueue within 60 s."""
    return SqsError(
        PURGE_QUEUE_IN_PROGRESS,
        f"Only one PurgeQueue operation on {queue_name} is allowed every 60 seconds.",
    )


def queue_name_exists(attribute: str) -> SqsError:
    """CreateQueue of an existing name with another value for `attribute`."""
    return SqsError(
        QUEUE_NAME_EXISTS,
        "A queue already exists with the same name and a different value for attribute "
        + attribute,
    )
