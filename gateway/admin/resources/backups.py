"""Files of a moment, pinned for a backup, over HTTP: `weir backup create` copies them.

    POST   /backups             GET, DELETE /backups/NUMBER
    POST   /cluster/cuts        (`resources.cluster`): all stores of a cluster pin first

A gateway of a cluster pins nothing: what it has is its name, its keys and the archive of the
metering, to which files are only added.

What is pinned is on this machine's disk, in the data directory (`pinned/`): whoever copies it reads
it there. A pin that nobody asks for goes after a minute, or ten if it is of a cut; a full disk
drops it before.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from gateway.admin.http.requests import answer, nothing, path_name, read_body
from gateway.process.running import GATEWAY_FILE
from gateway.reporting.node_metering import ARCHIVE_DIRECTORY
from kernel.common.errors import Code, KernelError
from metering.schema.manifest import MANIFEST_NAME

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from kernel.common.ports import Clock
    from kernel.store.space.pin_keeper import PinKeeper
    from kernel.store.space.pinning import Pin


@dataclass(frozen=True, slots=True)
class Pinning:
    """What a process has of it."""

    pins: PinKeeper | None
    """None: it has no store, it is a gateway of a cluster."""
    data: Path
    key_file: Path
    store: int = 0
    """Its number in a cluster; 0: it belongs to none, or is a gateway."""
    gateway: str = ""
    """Name of a gateway."""


Cut = Annotated[str, Meta(pattern="^[0-9a-f]{16}$")]
"""Of all stores of a cluster (`POST /cluster/cuts`)."""


class PinMake(Struct, frozen=True, forbid_unknown_fields=True):
    """Who asks for a pin."""

    maker: Annotated[str, Meta(max_length=64)] = ""
    """A word of the directory that backups are made in, one at a time: an earlier pin of the same
    word is one that nobody lived to drop, and goes."""
    cut: Cut | None = None
    """At a store of a cluster: nothing is pinned anew, it is what was pinned of that cut."""


class FilePinned(Struct, frozen=True):
    """`name`: what it is in a data directory. `pinned`: where it is now, below that directory."""

    name: str
    pinned: str
    length: int
    """Bytes that count; -1: all of the file."""
    size: int
    """Bytes that it is to have, zeros behind those; -1: no more."""


class PinShown(Struct, frozen=True, kw_only=True):
    """The files of a moment."""

    number: int
    """0: there is nothing to be pinned, and nothing to be let go."""
    data: str
    key_file: str
    store: str
    sequence: int
    level: int
    taken_ms: int
    archive_bytes: int
    """Of the manifest of the metering's archive: before that moment, of a gateway after it."""
    files: list[FilePinned]
    cut: str = ""
    node: int = 0
    """Number of the store in its cluster; 0: it belongs to none."""


class PinHeld(Struct, frozen=True):
    number: Annotated[int, Meta(ge=1)]


class BackupRoutes:
    """Handlers of pins."""

    def __init__(self, pinning: Pinning, clock: Clock) -> None:
        self._pins = pinning.pins
        self._data = pinning.data.resolve()
        self._key_file = pinning.key_file.resolve()
        self._store = pinning.store
        self._gateway = pinning.gateway
        self._clock = clock

    async def pin(self, request: Request) -> Response:
        """Pin the files of this moment: what is on the disk now, all groups together."""
        asked = await read_body(request, PinMake)
        manifest = self._data / ARCHIVE_DIRECTORY / MANIFEST_NAME
        archive_bytes = manifest.stat().st_size if manifest.exists() else 0
        if self._pins is None:
            return answer(self._of_gateway(asked, archive_bytes), 201)
        pin = await self._pinned(self._pins, asked)
        prefix = pin.prefix
        shown = PinShown(
            number=pin.number,
            data=str(self._data),
            key_file=str(self._key_file),
            store=prefix.store.hex(),
            sequence=prefix.sequence,
            level=prefix.checkpoint.level,
            taken_ms=self._clock.wall_ms(),
            archive_bytes=archive_bytes,
            files=[
                FilePinned(each.name, each.pinned, each.length, each.size) for each in pin.files
            ],
            cut=f"{pin.cut:016x}" if pin.cut else "",
            node=self._store,
        )
        return answer(shown, 201)

    def _of_gateway(self, asked: PinMake, archive_bytes: int) -> PinShown:
        if asked.cut is None:
            text = (
                "this is a gateway of a cluster: what it has alone is no backup. Run `weir cluster "
                "cut` first, then `weir backup create DIR --cut CUT` at each store, and here"
            )
            raise KernelError(Code.INVALID_ARGUMENT, text)
        return PinShown(
            number=0,
            data=str(self._data),
            key_file=str(self._key_file),
            store=self._gateway,
            sequence=0,
            level=0,
            taken_ms=self._clock.wall_ms(),
            archive_bytes=archive_bytes,
            files=[FilePinned(GATEWAY_FILE, GATEWAY_FILE, -1, -1)],
            cut=asked.cut,
        )

    async def _pinned(self, pins: PinKeeper, asked: PinMake) -> Pin:
        if asked.cut is not None:
            if not self._store:
                text = "this is `weir serve`, which belongs to no cluster: leave out the cut"
                raise KernelError(Code.INVALID_ARGUMENT, text)
            return await pins.keep(int(asked.cut, 16))
        if self._store:
            text = (
                f"this is store {self._store} of a cluster: what it has alone is no backup. Run "
                "`weir cluster cut` first, then `weir backup create DIR --cut CUT` at each store"
            )
            raise KernelError(Code.INVALID_ARGUMENT, text)
        return await pins.pin(asked.maker)

    async def touch(self, request: Request) -> Response:
        """Say that a pin is still needed; 404 if it was dropped."""
        return answer(PinHeld(self._held(request).touch(_number(request)).number))

    async def drop(self, request: Request) -> Response:
        """Let go of what is pinned."""
        self._held(request).drop(_number(request))
        return nothing()

    def _held(self, request: Request) -> PinKeeper:
        if self._pins is None:
            raise KernelError(Code.NOT_FOUND, f"no pin {_number(request)}: a gateway has none")
        return self._pins


def _number(request: Request) -> int:
    text = path_name(request, "number")
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise KernelError(Code.NOT_FOUND, f"no pin {text}")
    return int(text)
