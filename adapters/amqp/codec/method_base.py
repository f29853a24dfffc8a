"""What a method is: a frozen value whose class says how it travels.

The types of annotations are the specification's domains (AMQP 0-9-1 section 4.2.5)::

    Octet u8   Short u16   Long u32   LongLong u64   ShortStr u8 + bytes
    LongStr u32 + bytes   Bit packed, up to eight of a run in one octet   Table see fields.py

`key = class_id << 16 | method_id` names a method: it is what the first four octets of a method
frame's payload say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from collections.abc import Callable

Octet: TypeAlias = int
Short: TypeAlias = int
Long: TypeAlias = int
LongLong: TypeAlias = int
ShortStr: TypeAlias = str
LongStr: TypeAlias = bytes
Bit: TypeAlias = bool


class Method:
    """Base of all methods; instances are frozen and slotted."""

    __slots__ = ()
    class_id: ClassVar[int] = 0
    method_id: ClassVar[int] = 0
    key: ClassVar[int] = 0
    wire_name: ClassVar[str] = ""
    layout: ClassVar[tuple[tuple[str, str], ...]] = ()
    """(argument name, domain) in wire order."""


METHODS: Final[dict[int, type[Method]]] = {}
"""Every method by its key; filled by importing `spec`."""

_MethodT = TypeVar("_MethodT", bound=Method)


@dataclass_transform(frozen_default=True)
def method(
    class_id: int, method_id: int, wire_name: str
) -> Callable[[type[_MethodT]], type[_MethodT]]:
    """Make a class a frozen, slotted dataclass and enter it in `METHODS`."""

    def enter(plain: type[_MethodT]) -> type[_MethodT]:
        made = dataclass(frozen=True, slots=True)(plain)
        made.class_id = class_id
        made.method_id = method_id
        made.key = class_id << 16 | method_id
        made.wire_name = wire_name
        made.layout = tuple(plain.__annotations__.items())
        METHODS[made.key] = made
        return made

    return enter
