"""The error table beside botocore's model, and the exceptions boto3 makes of our answers."""

from __future__ import annotations

import botocore.session
import pytest
from botocore.exceptions import ClientError

from adapters.sqs import error_codes as errors
from adapters.sqs.codec.query_codec import QUERY_XML
from adapters.sqs.error_codes import ERROR_KINDS, QUOTED_CHARS_MAX, SQS, ErrorKind, SqsError

MODEL = botocore.session.Session().get_service_model("sqs")
MODELLED = {shape.name for shape in MODEL.error_shapes}

CODES = {
    "QueueDoesNotExist": ("AWS.SimpleQueueService.NonExistentQueue", 400),
    "QueueNameExists": ("QueueAlreadyExists", 400),
    "QueueDeletedRecently": ("AWS.SimpleQueueService.QueueDeletedRecently", 400),
    "MessageNotInflight": ("AWS.SimpleQueueService.MessageNotInflight", 400),
    "UnsupportedOperation": ("AWS.SimpleQueueService.UnsupportedOperation", 400),
    "EmptyBatchRequest": ("AWS.SimpleQueueService.EmptyBatchRequest", 400),
    "TooManyEntriesInBatchRequest": ("AWS.SimpleQueueService.TooManyEntriesInBatchRequest", 400),
    "BatchEntryIdsNotDistinct": ("AWS.SimpleQueueService.BatchEntryIdsNotDistinct", 400),
    "BatchRequestTooLong": ("AWS.SimpleQueueService.BatchRequestTooLong", 400),
    "InvalidBatchEntryId": ("AWS.SimpleQueueService.InvalidBatchEntryId", 400),
    "PurgeQueueInProgress": ("AWS.SimpleQueueService.PurgeQueueInProgress", 403),
    "OverLimit": ("OverLimit", 403),
    "RequestThrottled": ("RequestThrottled", 403),
    "InvalidSecurity": ("InvalidSecurity", 403),
    "ReceiptHandleIsInvalid": ("ReceiptHandleIsInvalid", 404),
    "InvalidAddress": ("InvalidAddress", 404),
    "ResourceNotFoundException": ("ResourceNotFoundException", 404),
    "InvalidAttributeName": ("InvalidAttributeName", 400),
    "InvalidAttributeValue": ("InvalidAttributeValue", 400),
    "InvalidIdFormat": ("InvalidIdFormat", 400),
    "InvalidMessageContents": ("InvalidMessageContents", 400),
    "KmsAccessDenied": ("KMS.AccessDeniedException", 400),
    "KmsDisabled": ("KMS.DisabledException", 400),
    "KmsInvalidKeyUsage": ("KMS.InvalidKeyUsageException", 400),
    "KmsInvalidState": ("KMS.InvalidStateException", 400),
    "KmsNotFound": ("KMS.NotFoundException", 400),
    "KmsOptInRequired": ("KMS.OptInRequired", 403),
    "KmsThrottled": ("KMS.ThrottlingException", 400),
    "InvalidParameterValueException": ("InvalidParameterValue", 400),
    "MissingRequiredParameterException": ("MissingParameter", 400),
    "MissingAuthenticationTokenException": ("MissingAuthenticationToken", 403),
    "UnrecognizedClientException": ("InvalidClientTokenId", 403),
    "IncompleteSignatureException": ("IncompleteSignature", 400),
    "InvalidSignatureException": ("SignatureDoesNotMatch", 403),
    "RequestExpired": ("RequestExpired", 400),
    "AccessDeniedException": ("AccessDenied", 403),
    "InvalidAction": ("InvalidAction", 400),
    "MissingAction": ("MissingAction", 400),
    "InternalFailure": ("InternalFailure", 500),
}


def test_every_modelled_error_is_in_the_table_and_known_as_modelled() -> None:
    ours = {kind.shape for kind in ERROR_KINDS if kind.namespace == SQS}
    assert ours == MODELLED


def test_codes_and_statuses_are_those_of_the_query_compatible_table() -> None:
    table = {kind.shape: (kind.code, kind.status) for kind in ERROR_KINDS}
    assert {shape: table[shape] for shape in CODES} == CODES
    assert set(CODES) >= MODELLED


def test_only_server_errors_are_the_receivers_fault() -> None:
    assert {kind.status >= 500 for kind in ERROR_KINDS if not kind.sender} == {True}
    assert {kind.status < 500 for kind in ERROR_KINDS if kind.sender} == {True}


@pytest.mark.parametrize("kind", ERROR_KINDS, ids=lambda kind: f"{kind.shape}-{kind.status}")
def test_boto3_raises_the_class_of_the_shape_with_the_code(
    kind: ErrorKind, loopback, json_client
) -> None:
    def refuse(call):
        raise SqsError(kind, 'with "quotes", <tags> & ünïcode')

    loopback.answer = refuse
    expected = (
        json_client.exceptions.from_code(kind.shape) if kind.shape in MODELLED else ClientError
    )
    with pytest.raises(expected) as caught:
        json_client.list_queues()
    response = caught.value.response
    assert response["Error"]["Code"] == kind.code
    assert response["Error"]["QueryErrorCode"] == kind.shape
    assert response["Error"]["Message"] == 'with "quotes", <tags> & ünïcode'
    assert response["Error"]["Type"] == ("Sender" if kind.sender else "Receiver")
    assert response["ResponseMetadata"]["HTTPStatusCode"] == kind.status
    assert response["ResponseMetadata"]["RequestId"] == "7a62c49f-347e-4fc4-9331-6e8e7a96aa73"


def test_texts_quote_what_was_sent_up_to_a_bound() -> None:
    error = errors.invalid_parameter("x" * 100_000, "P", "Because.")
    assert error.message.endswith("x for parameter P is invalid. Reason: Because.")
    assert len(error.message) < QUOTED_CHARS_MAX + 100
    assert len(errors.invalid_receipt_handle("x" * 100_000).message) < QUOTED_CHARS_MAX + 100
    assert len(SqsError(errors.ACCESS_DENIED, "x" * 100_000).message) < 10_000


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            errors.expired_receipt_handle("h"),
            (
                "Value h for parameter ReceiptHandle is invalid. Reason: The receipt handle has "
                "expired."
            ),
        ),
        (
            errors.message_not_available("h"),
            (
                "Value h for parameter ReceiptHandle is invalid. Reason: Message does "
                "not exist or is "
                "not available for visibility timeout change."
            ),
        ),
        (
            errors.invalid_receipt_handle("h"),
            'The input receipt handle "h" is not a valid receipt handle.',
        ),
        (
            errors.visibility_beyond_limit(43200),
            (
                "Value 43200 for parameter VisibilityTimeout is invalid. Reason: Total "
                "VisibilityTimeout for the message is beyond the limit [43200 seconds]."
            ),
        ),
        (
            errors.purge_in_progress("q"),
            "Only one PurgeQueue operation on q is allowed every 60 seconds.",
        ),
        (
            errors.queue_name_exists("DelaySeconds"),
            (
                "A queue already exists with the same name and a different value for attribute "
                "DelaySeconds"
            ),
        ),
        (
            errors.missing_parameter("MessageBody"),
            "The request must contain the parameter MessageBody.",
        ),
    ],
)
def test_texts_that_sdk_users_match_on(error: SqsError, message: str) -> None:
    assert error.message == message
    assert error.query_message == message
    assert b"<Message>" in QUERY_XML.encode_error(error, "r").body
