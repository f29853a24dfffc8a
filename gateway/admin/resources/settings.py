"""The settings of the process that is asked, over HTTP.

GET /settings    every setting that can be changed, with its value and where that came from
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from gateway.admin.http.requests import answer
from gateway.config.merge import is_fact
from gateway.config.path import spell
from kernel.common.errors import Code, KernelError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from gateway.config.loading import Loaded


class SettingShown(Struct, frozen=True):
    name: str
    value: Any
    origin: str
    """`default`, or the file and line, the variable or the flag."""


class SettingList(Struct, frozen=True):
    settings: list[SettingShown]


class SettingRoutes:
    """Handler of the settings. No secret is among them: they name files that hold one."""

    def __init__(self, loaded: Loaded | None) -> None:
        """`loaded`: None where nobody has said where they come from."""
        self._loaded = loaded

    async def list_settings(self, request: Request) -> Response:
        """The settings that this process was started with, as `weir config show --origin` has
        them.
        """
        if self._loaded is None:
            raise KernelError(Code.UNAVAILABLE, "this process does not know its settings' origin")
        origins = self._loaded.origins
        shown = [
            SettingShown(spell(path), value, origins[path])
            for path, value in self._loaded.values.items()
            if not is_fact(path)
        ]
        return answer(SettingList(shown))
