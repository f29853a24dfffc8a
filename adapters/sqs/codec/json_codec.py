"""AWS JSON 1.0: the protocol of all current SDKs.

    POST / HTTP/1.1                              HTTP/1.1 200 OK
    X-Amz-Target: AmazonSQS.SendMessage          Content-Type: application/x-amz-json-1.0
    Content-Type: application/x-amz-json-1.0     x-amzn-RequestId: …
    {"QueueUrl": …, "MessageBody": …}            {"MD5OfMessageBody": …, "MessageId": …}

    HTTP/1.1 400 Bad Request
    x-amzn-query-error: AWS.SimpleQueueService.NonExistentQueue;Sender
    {"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":…}

A request is read straight into its shape. Only one that does not fit the types is looked at again,
member by member: AWS takes a number or a boolean for a string, ignores nulls in maps, and has a
sentence for everything else.
"""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING

import msgspec

from .. import error_codes as errors
from .. import names
from ..error_codes import SqsError
from ..http import request_response as http
from .shape_base import Field, Shape, ShapeKind, fields_of
from .shapes import ACTIONS, Call

if TYPE_CHECKING:
    from ..http.request_response import HttpRequest, HttpResponse
    from .shapes import Action

CONTENT_TYPE = b"application/x-amz-json-1.0"
TARGET_HEADER = b"x-amz-target"
ERROR_HEADER = b"x-amzn-query-error"
"""SDKs that learnt the codes of the Query protocol find them here; without it they break."""

_TARGETS = {
    b"AmazonSQS." + name.encode(): (action, msgspec.json.Decoder(action.request))
    for name, action in ACTIONS.items()
}
_ENCODER = msgspec.json.Encoder()
_ANY = msgspec.json.Decoder()
_NO_RESULT = b"{}"


class JsonProtocol:
    """See `wire.WireProtocol`."""

    name = "json"

    def decode(self, request: HttpRequest) -> Call:
        """The call in a request. Raises SqsError for whatever is wrong with its form."""
        target = _TARGETS.get(request.header(TARGET_HEADER) or b"")
        if target is None:
            raise SqsError(errors.UNKNOWN_TARGET)
        action, decoder = target
        body = request.body or _NO_RESULT
        if len(body) > http.REQUEST_BYTES_MAX:
            raise SqsError(errors.REQUEST_TOO_LARGE)
        try:
            params = decoder.decode(body)
        except msgspec.ValidationError:
            params = _decode_leniently(action.request, body)
        except (ValueError, RecursionError):
            # ValueError covers malformed JSON and text that is not UTF-8.
            raise SqsError(errors.SERIALIZATION, "The request body is not valid JSON.") from None
        if len(request.raw_path) > 1 and getattr(params, "queue_url", "") is None:
            params = msgspec.structs.replace(params, queue_url=names.queue_path(request.raw_path))
        return Call(action, params)

    def encode_result(self, action: Action, result: Shape | None, request_id: str) -> HttpResponse:
        """The answer to a call that succeeded."""
        del action
        body = _NO_RESULT if result is None else _ENCODER.encode(result)
        return http.response(200, CONTENT_TYPE, request_id, body)

    def encode_error(self, error: SqsError, request_id: str) -> HttpResponse:
        """The answer to a call that failed."""
        kind = error.kind
        body = _ENCODER.encode(
            {"__type": f"{kind.namespace}#{kind.shape}", "message": error.message}
        )
        fault = b";Sender" if kind.sender else b";Receiver"
        return http.response(
            kind.status, CONTENT_TYPE, request_id, body, (ERROR_HEADER, kind.code.encode() + fault)
        )


JSON = JsonProtocol()


# --- requests that do not fit the types --------------------------------------------------------


def _decode_leniently(shape: type[Shape], body: bytes) -> Shape:
    try:
        document = _ANY.decode(body)
    except (ValueError, RecursionError):
        raise SqsError(errors.SERIALIZATION, "The request body is not valid JSON.") from None
    try:
        return msgspec.convert(_shape(shape, document), shape)
    except msgspec.ValidationError as error:
        raise SqsError(errors.SERIALIZATION, str(error)) from None


def _shape(shape: type[Shape], value: object) -> dict[str, object]:
    members = _object(value)
    return {
        field.json_name: _member(field, members[field.json_name])
        for field in fields_of(shape)
        if members.get(field.json_name) is not None
    }


def _member(field: Field, value: object) -> object:
    if field.kind is ShapeKind.LIST:
        if not isinstance(value, list):
            raise SqsError(errors.SERIALIZATION, "Expected list or null")
        return [_item(field, item) for item in value if item is not None]
    if field.kind is ShapeKind.MAP:
        return {key: _item(field, item) for key, item in _object(value).items() if item is not None}
    return _scalar(field.kind, value)


def _item(field: Field, value: object) -> object:
    if field.item_shape is not None:
        return _shape(field.item_shape, value)
    assert field.item is not None
    return _scalar(field.item, value)


def _object(value: object) -> dict[str, object]:
    if isinstance(value, dict):
        return value
    raise SqsError(errors.SERIALIZATION, "Expected structure or map, or null")


def _scalar(kind: ShapeKind, value: object) -> object:
    if isinstance(value, dict):
        message = "Start of structure or map found where not expected."
        raise SqsError(errors.SERIALIZATION, message)
    if isinstance(value, list):
        raise SqsError(errors.SERIALIZATION, "Start of list found where not expected.")
    if kind is ShapeKind.STRING:
        return _text(value)
    if kind is ShapeKind.INTEGER:
        return _integer(value)
    return _blob(value)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return _ENCODER.encode(value).decode()


def _integer(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    found = {str: "STRING_VALUE", float: "DECIMAL_VALUE"}.get(type(value), "BOOLEAN_VALUE")
    raise SqsError(errors.SERIALIZATION, f"{found} can not be converted to an Integer")


def _blob(value: object) -> bytes:
    if not isinstance(value, str):
        raise SqsError(errors.SERIALIZATION, "A binary value must be a string in base64.")
    try:
        return binascii.a2b_base64(value, strict_mode=True)
    except ValueError:
        raise SqsError(errors.SERIALIZATION, "A binary value is not valid base64.") from None
