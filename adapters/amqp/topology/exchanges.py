"""Exchanges as routers, bindings as routes.

    direct    EXACT       binding key = routing key
    fanout    ALL         always
    topic     PATTERN     `*` stands for one word, `#` for any number of words
    headers   ATTRIBUTES  the headers named in the binding match, all or any of them (`x-match`)

`x-delayed-message` is one of these, named by its argument `x-delayed-type`: every exchange honours
the header `x-delay`.

Header values are compared as `stored.plain_value` gives them: an integer of any width equals the
same number of any other width. An empty (void) value in a binding asks for presence only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from adapters.amqp.codec.fields import EMPTY_TABLE, Table, decode_table, encode_table, text_of
from adapters.amqp.errors import PRECONDITION_FAILED, AmqpError
from adapters.amqp.limits import DECLARATION_BYTES_MAX
from adapters.amqp.messages.stored import plain_value
from adapters.amqp.names import PREDECLARED, TREE, resource, router_key
from adapters.amqp.topology.arguments import ADAPTER_NAME, compare_argument, inequivalent
from kernel.api.model import AttributesMatch, Match, Route, RouterOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel.api.model import RouterInfo

MATCHES: Final = {
    "direct": Match.EXACT,
    "fanout": Match.ALL,
    "topic": Match.PATTERN,
    "headers": Match.ATTRIBUTES,
}
TYPES: Final = {match: name for name, match in MATCHES.items()}
DELAYED: Final = "x-delayed-message"

_X_MATCH: Final = {
    "all": (AttributesMatch.ALL_OF, False),
    "any": (AttributesMatch.ANY_OF, False),
    "all-with-x": (AttributesMatch.ALL_OF, True),
    "any-with-x": (AttributesMatch.ANY_OF, True),
}
"""x-match: how to combine, and whether headers that begin with x- count."""


class _Record(NamedTuple):
    """The form of a declaration in `declarations`: msgpack of an array."""

    version: int
    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: bytes


@dataclass(frozen=True, slots=True)
class ExchangeDeclaration:
    """What a client asks of an exchange. Made by `exchange_declaration`, which checks it."""

    type: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: Table = EMPTY_TABLE
    tree: bool = field(default=False, compare=False)
    """Whether it is the door to the topic tree, as `amq.topic` is
    (docs/design/model.md#the-topic-tree)."""

    @property
    def match(self) -> Match:
        """How its router matches."""
        if self.type == DELAYED:
            return MATCHES[text_of(self.arguments.get("x-delayed-type")) or ""]
        return MATCHES[self.type]

    def router_options(self) -> RouterOptions:
        """Options of its router."""
        return RouterOptions(
            match=self.match,
            durable=self.durable,
            internal=self.internal,
            delete_when_unused=self.auto_delete,
            tree=self.tree,
            alternate=text_of(self.arguments.get("alternate-exchange")),
            declarations={ADAPTER_NAME: self._encode()},
        )

    def _encode(self) -> bytes:
        record = _Record(
            1,
            self.type,
            self.durable,
            self.auto_delete,
            self.internal,
            encode_table(self.arguments),
        )
        return msgspec.msgpack.encode(record)

    @classmethod
    def of(cls, router: RouterInfo) -> ExchangeDeclaration:
        """The last declaration of a router; what it amounts to if no AMQP client made it."""
        options = router.options
        data = options.declarations.get(ADAPTER_NAME)
        if data is None:
            return cls(
                TYPES[options.match],
                options.durable,
                options.delete_when_unused,
                options.internal,
            )
        record = msgspec.msgpack.decode(data, type=_Record)
        arguments, _ = decode_table(record.arguments, 0, len(record.arguments))
        return cls(record.type, record.durable, record.auto_delete, record.internal, arguments)


def predeclared(name: str) -> ExchangeDeclaration:
    """The declaration of an `amq.` exchange that every virtual host has."""
    return ExchangeDeclaration(
        PREDECLARED[name], durable=True, auto_delete=False, internal=False, tree=name == TREE
    )


def exchange_declaration(
    name: str,
    virtual_host: str,
    kind: str,
    *,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: Table,
) -> ExchangeDeclaration:
    """A checked declaration. Raises AmqpError 406."""
    where = resource("exchange", name, virtual_host)
    if kind not in MATCHES and kind != DELAYED:
        raise AmqpError(PRECONDITION_FAILED, f"unknown exchange type '{kind}' for {where}")
    if kind == DELAYED and text_of(arguments.get("x-delayed-type")) not in MATCHES:
        raise AmqpError(
            PRECONDITION_FAILED,
            f"invalid argument, 'x-delayed-type' must be an existing exchange type for {where}",
        )
    alternate = arguments.get("alternate-exchange")
    if alternate is not None and text_of(alternate) is None:
        raise AmqpError(
            PRECONDITION_FAILED, f"invalid arg 'alternate-exchange' for {where}: not a string"
        )
    if len(encode_table(arguments)) > DECLARATION_BYTES_MAX:
        raise AmqpError(
            PRECONDITION_FAILED, f"arguments of {where} over {DECLARATION_BYTES_MAX} bytes"
        )
    return ExchangeDeclaration(kind, durable, auto_delete, internal, arguments)


def check_equivalence(
    wanted: ExchangeDeclaration, known: ExchangeDeclaration, name: str, virtual_host: str
) -> None:
    """Refuse a redeclaration that differs. Raises AmqpError 406."""
    where = resource("exchange", name, virtual_host)
    for label, asked, current in (
        ("type", wanted.type, known.type),
        ("durable", wanted.durable, known.durable),
        ("auto_delete", wanted.auto_delete, known.auto_delete),
        ("internal", wanted.internal, known.internal),
    ):
        if asked != current:
            raise inequivalent(label, where, asked=asked, current=current)
    for argument in ("alternate-exchange", "x-delayed-type"):
        compare_argument(argument, where, wanted.arguments, known.arguments)


def route(
    source: RouterInfo,
    key: str,
    arguments: Table,
    *,
    topic: str | None = None,
    router: str | None = None,
) -> Route:
    """The route that a binding from an exchange is. Exactly one of `topic` and `router` is given.

    Raises AmqpError 406 for an `x-match` that does not exist, or arguments that are too long.
    """
    declaration = encode_table(arguments) if arguments.entries else b""
    if len(declaration) > DECLARATION_BYTES_MAX:
        raise AmqpError(
            PRECONDITION_FAILED, f"arguments of a binding over {DECLARATION_BYTES_MAX} bytes"
        )
    attributes: tuple[tuple[str, bytes], ...] = ()
    combine = AttributesMatch.ALL_OF
    if source.options.match is Match.ATTRIBUTES:
        combine, attributes = _attributes(arguments)
    return Route(
        key=router_key(source.name, key),
        attributes=attributes,
        combine=combine,
        topic=topic,
        router=router,
        declaration=declaration,
    )


def _attributes(arguments: Table) -> tuple[AttributesMatch, tuple[tuple[str, bytes], ...]]:
    """What a binding of a headers exchange asks for."""
    field = arguments.get("x-match")
    word = "all" if field is None else text_of(field)
    if word not in _X_MATCH:
        raise AmqpError(
            PRECONDITION_FAILED,
            f"Invalid x-match field value {word!r}; expected one of {', '.join(_X_MATCH)}",
        )
    combine, with_x = _X_MATCH[word]
    wanted: dict[str, bytes] = {}
    for name, value in arguments.entries:
        if name == "x-match" or (name.startswith("x-") and not with_x):
            continue
        try:
            name.encode()
            wanted.setdefault(name, msgspec.msgpack.encode(plain_value(value)))
        except UnicodeEncodeError:
            raise AmqpError(PRECONDITION_FAILED, "names of headers must be UTF-8") from None
    return combine, tuple(wanted.items())


def needs_attributes(router_of: Callable[[str], RouterInfo | None], name: str) -> bool:
    """Whether a publish to router `name` can meet one that matches by attributes.

    `router_of` may raise NotLoaded.
    """
    ahead = [name]
    seen = {name}
    while ahead:
        router = router_of(ahead.pop())
        if router is None:
            continue
        if router.options.match is Match.ATTRIBUTES:
            return True
        further = [route.router for route in router.routes if route.router is not None]
        if router.options.alternate is not None:
            further.append(router.options.alternate)
        for each in further:
            if each not in seen:
                seen.add(each)
                ahead.append(each)
    return False
