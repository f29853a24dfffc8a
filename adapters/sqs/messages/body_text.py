"""A stored body as the text of an SQS message, and back
(docs/design/model.md#the-message-contract).

SQS carries text of XML 1.0's characters. A body that is such text is given as it is; any other in
base64, with the String attribute `weir.encoding` = `base64`, which a writer may set as well.
"""

from __future__ import annotations

import binascii

from .. import error_codes as errors

ENCODING_ATTRIBUTE = "weir.encoding"
BASE64 = "base64"

_ILLEGAL_CONTROLS = bytes(set(range(0x20)) - {0x09, 0x0A, 0x0D})
_NON_CHARACTERS = (b"\xef\xbf\xbe", b"\xef\xbf\xbf")
"""U+FFFE and U+FFFF in UTF-8. Surrogates need no test: they are no UTF-8."""


def is_legal(utf8: bytes) -> bool:
    """True if text, given in UTF-8, holds only characters that XML 1.0 allows."""
    # Deleting nothing is the fastest way to learn that nothing was there to delete.
    if len(utf8.translate(None, _ILLEGAL_CONTROLS)) != len(utf8):
        return False
    return utf8.isascii() or not any(character in utf8 for character in _NON_CHARACTERS)


def text_of(body: bytes) -> tuple[str, bool]:
    """The text of a body, and whether it is base64. An empty body is the empty text."""
    if is_legal(body):
        try:
            return body.decode(), False
        except UnicodeDecodeError:
            pass
    return base64_of(body), True


def base64_of(body: bytes) -> str:
    """Base64 of a body, for a reader of what a writer sent in base64."""
    return binascii.b2a_base64(body, newline=False).decode()


def body_of(text: bytes) -> bytes:
    """The body in a message whose writer set `weir.encoding` = `base64`.

    Raises InvalidParameterValue if the text is not base64.
    """
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        raise errors.invalid_parameter(
            BASE64, ENCODING_ATTRIBUTE, "The message body is not valid base64."
        ) from None
