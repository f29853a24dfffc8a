"""Answers of the Query protocol in XML, from the shape table.

<SendMessageResponse xmlns="http://queue.amazonaws.com/doc/2012-11-05/">
  <SendMessageResult><MessageId>…</MessageId>…</SendMessageResult>
  <ResponseMetadata><RequestId>…</RequestId></ResponseMetadata>
</SendMessageResponse>

<ErrorResponse xmlns="…">
  <Error><Type>Sender</Type><Code>…</Code><Message>…</Message><Detail/></Error>
  <RequestId>…</RequestId>
</ErrorResponse>
"""

from __future__ import annotations

import binascii
import re
from typing import TYPE_CHECKING

from .shape_base import Field, Shape, ShapeKind, fields_of

if TYPE_CHECKING:
    from ..error_codes import SqsError
    from .shapes import Action

NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"
_DECLARATION = '<?xml version="1.0"?>'
UNKNOWN_OPERATION = b"<UnknownOperationException/>"

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#xD;"}
"""A bare carriage return would reach the client as a line feed (XML 1.0, 2.11)."""
_NOT_LITERAL = re.compile('[&<>"\r\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]')
_REPLACEMENT = "\ufffd"
"""Stands for what XML 1.0 cannot carry at all. Bodies never hold any; a text that quotes may."""


def escape(text: str) -> str:
    """Text as the content of an element."""
    return _NOT_LITERAL.sub(lambda match: _ENTITIES.get(match[0], _REPLACEMENT), text)


def encode_result(action: Action, result: Shape | None, request_id: str) -> bytes:
    """The whole document for a call that succeeded."""
    name = action.name
    parts = [_DECLARATION, f'<{name}Response xmlns="{NAMESPACE}">']
    if action.result is not None:
        inner: list[str] = []
        if result is not None:
            _write_shape(inner, result)
        parts += [f"<{name}Result>", *inner, f"</{name}Result>"] if inner else [f"<{name}Result/>"]
    parts.append(
        f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata></{name}Response>"
    )
    return "".join(parts).encode()


def encode_error(error: SqsError, request_id: str) -> bytes:
    """The whole document for a call that failed."""
    fault = "Sender" if error.kind.sender else "Receiver"
    return (
        f'{_DECLARATION}<ErrorResponse xmlns="{NAMESPACE}"><Error><Type>{fault}</Type>'
        f"<Code>{error.kind.code}</Code><Message>{escape(error.query_message)}</Message><Detail/>"
        f"</Error><RequestId>{request_id}</RequestId></ErrorResponse>"
    ).encode()


def _write_shape(parts: list[str], shape: Shape) -> None:
    for field in fields_of(type(shape)):
        value = getattr(shape, field.attribute)
        name = field.query_name
        if value is None:
            continue
        if field.kind is ShapeKind.LIST:
            for item in value:
                _write_item(parts, name, item)
        elif field.kind is ShapeKind.MAP:
            _write_map(parts, field, value)
        else:
            _write_item(parts, name, value)


def _write_map(parts: list[str], field: Field, entries: dict[str, object]) -> None:
    for key, value in entries.items():
        parts.append(f"<{field.query_name}><{field.key_name}>{escape(key)}</{field.key_name}>")
        _write_item(parts, "Value", value)
        parts.append(f"</{field.query_name}>")


def _write_item(parts: list[str], name: str, value: object) -> None:
    if isinstance(value, Shape):
        parts.append(f"<{name}>")
        _write_shape(parts, value)
        parts.append(f"</{name}>")
    else:
        parts.append(f"<{name}>{_text(value)}</{name}>")


def _text(value: object) -> str:
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, bytes):
        return binascii.b2a_base64(value, newline=False).decode()
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
