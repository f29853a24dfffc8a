"""Attributes of any protocol as SQS message attributes, and back
(docs/design/model.md#the-message-contract).

    kernel value       SQS value                    read back as
    text               String                       text
    integer, 64 bit    Number                       integer
    number             Number                       number
    boolean            String.bool `true`/`false`   boolean
    bytes              Binary                       bytes
    anything else      in weir.more                 itself

SQS allows 10 attributes. Reserved ones come first, then the others by name. If some are left over,
or SQS forbids their name or value (an odd character, an empty text), nine are given and the tenth,
`weir.more`, holds the rest as a JSON object; bytes in it are `{"$base64": …}`. A writer may send
`weir.more` too: what was received can be sent on as it is.
"""

from __future__ import annotations

import binascii
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from .. import error_codes as errors
from ..codec.shapes import MessageAttributeValue
from . import body_text
from .body_text import ENCODING_ATTRIBUTE
from .message_attributes import ATTRIBUTES_MAX, is_attribute_name

if TYPE_CHECKING:
    from collections.abc import Mapping

MORE_ATTRIBUTE = "weir.more"
RESERVED_NAMES = (
    ENCODING_ATTRIBUTE,
    "weir.message_id",
    "weir.tag",
    "weir.keys",
    "weir.content_type",
    "weir.correlation_id",
    "weir.reply_to",
)
"""Fields of the kernel that SQS has no parameter for, in the order they are given."""

_INTEGER_MIN, _INTEGER_MAX = -(2**63), 2**63 - 1
"""What every other protocol and the kernel's own encoding can carry."""
_BOOLEAN_TYPE = "String.bool"
_BYTES_KEY = "$base64"
_INTEGER_DIGITS_MAX = 20


@dataclass(frozen=True, slots=True)
class Properties:
    """What a message carries beside its body. `reserved`: texts under names of RESERVED_NAMES."""

    reserved: Mapping[str, str]
    attributes: Mapping[str, object]


def to_sqs(properties: Properties) -> dict[str, MessageAttributeValue]:
    """At most 10 message attributes that say all of it."""
    fitting: dict[str, MessageAttributeValue] = {}
    rest: dict[str, object] = {}
    reserved = [(name, properties.reserved.get(name)) for name in RESERVED_NAMES]
    given = [(name, value) for name, value in reserved if value is not None]
    for name, value in (*given, *sorted(properties.attributes.items())):
        attribute = _to_value(value) if is_attribute_name(name) and name not in fitting else None
        if attribute is None or name == MORE_ATTRIBUTE:
            rest[name] = value
        else:
            fitting[name] = attribute
    if rest or len(fitting) > ATTRIBUTES_MAX:
        for name in list(fitting)[ATTRIBUTES_MAX - 1 :]:
            # Never a reserved one: they stand first and are fewer.
            del fitting[name]
            rest[name] = properties.attributes[name]
        text = json.dumps(_to_json(rest), separators=(",", ":"))
        fitting[MORE_ATTRIBUTE] = MessageAttributeValue(data_type="String", string_value=text)
    return fitting


def from_sqs(attributes: Mapping[str, MessageAttributeValue]) -> Properties:
    """What message attributes that passed validation say.

    Raises InvalidParameterValue if `weir.more` is not a JSON object.
    """
    values: dict[str, object] = {}
    if (more := attributes.get(MORE_ATTRIBUTE)) is not None:
        values.update(_from_more(more))
    values.update(
        (name, _from_value(value)) for name, value in attributes.items() if name != MORE_ATTRIBUTE
    )
    reserved: dict[str, str] = {}
    for name in RESERVED_NAMES:
        if isinstance(value := values.get(name), str):
            reserved[name] = value
            del values[name]
    return Properties(reserved, values)


# --- one value ---------------------------------------------------------------------------------


def _to_value(value: object) -> MessageAttributeValue | None:
    """None: SQS has no form for it."""
    if isinstance(value, bool):
        text = "true" if value else "false"
        return MessageAttributeValue(data_type=_BOOLEAN_TYPE, string_value=text)
    if isinstance(value, str) and value and body_text.is_legal(value.encode()):
        return MessageAttributeValue(data_type="String", string_value=value)
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return MessageAttributeValue(data_type="Number", string_value=repr(value))
    if isinstance(value, bytes) and value:
        return MessageAttributeValue(data_type="Binary", binary_value=value)
    return None


def _from_value(value: MessageAttributeValue) -> object:
    if value.binary_value is not None:
        return value.binary_value
    text = value.string_value or ""
    if value.data_type == _BOOLEAN_TYPE and text in {"true", "false"}:
        return text == "true"
    if (value.data_type or "").partition(".")[0] == "Number":
        return _number(text)
    return text


def _number(text: str) -> int | float | str:
    digits = text.removeprefix("-").removeprefix("+")
    if digits.isdigit() and len(digits) <= _INTEGER_DIGITS_MAX:
        number = int(text)
        return number if _INTEGER_MIN <= number <= _INTEGER_MAX else text
    real = float(text)
    # A number no other protocol can carry stays the text it is; so does one of 38 digits.
    return real if math.isfinite(real) and not digits.isdigit() else text


# --- weir.more ---------------------------------------------------------------------------------


def _to_json(value: object) -> object:
    if isinstance(value, bytes):
        return {_BYTES_KEY: binascii.b2a_base64(value, newline=False).decode()}
    if isinstance(value, dict):
        return {str(name): _to_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    if value is None or isinstance(value, str | int):
        return value
    # JSON has no infinity, and no type for whatever else a client may have.
    return value if isinstance(value, float) and math.isfinite(value) else str(value)


def _from_more(more: MessageAttributeValue) -> dict[str, object]:
    try:
        document = msgspec.json.decode(more.string_value or "")
        if isinstance(document, dict):
            return {name: _from_json(value) for name, value in document.items()}
    except (ValueError, RecursionError):
        pass
    reason = "It must be a JSON object as Weir writes it."
    raise errors.invalid_parameter(more.string_value, MORE_ATTRIBUTE, reason)


def _from_json(value: object) -> object:
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    if isinstance(value, dict):
        if value.keys() == {_BYTES_KEY} and isinstance(text := value[_BYTES_KEY], str):
            return binascii.a2b_base64(text, strict_mode=True)
        return {name: _from_json(item) for name, item in value.items()}
    return value
