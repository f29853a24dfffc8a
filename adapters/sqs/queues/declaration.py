"""What SQS keeps of a queue beside the kernel's settings, in `TopicOptions.declarations["sqs"]`.

    msgpack [1, {attribute: text}, {tag: value}, created_s or nil, modified_s]

`attributes` are those asked for at creation and set since, in canonical form. CreateQueue compares
with them and not with the kernel's settings, which other protocols may have changed meanwhile; what
the kernel does not know (Policy, keys, delays) stands here alone. `created_s` is nil if SQS did not
create the queue: then every CreateQueue is the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from kernel.api.model import TopicOptions

ADAPTER: Final = "sqs"
"""Key of our declarations."""

VERSION: Final = 1


class Declaration(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One queue's declaration. `created_s` and `modified_s`: seconds since 1970."""

    version: int = VERSION
    attributes: dict[str, str] = {}
    tags: dict[str, str] = {}
    created_s: int | None = None
    modified_s: int = 0


NONE: Final = Declaration()
"""Of a topic that another protocol made and SQS never touched."""

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Declaration)


def declaration_of(options: TopicOptions) -> Declaration:
    """The declaration in a topic's options. Raises ValueError for one of a newer version."""
    data = options.declarations.get(ADAPTER)
    if data is None:
        return NONE
    declaration = _DECODER.decode(data)
    if declaration.version != VERSION:
        raise ValueError(f"declaration of version {declaration.version}, {VERSION} is the latest")
    return declaration


def with_declaration(options: TopicOptions, declaration: Declaration) -> TopicOptions:
    """The options with another declaration of ours; those of other adapters stay."""
    declarations = {**options.declarations, ADAPTER: _ENCODER.encode(declaration)}
    return msgspec.structs.replace(options, declarations=declarations)
