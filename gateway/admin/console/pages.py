"""The files of the console, as a browser gets them: ours, the same for everybody, without data.

What a page may do, the browser is told with each file (CONTENT_POLICY): scripts and styles are
files from here, nothing is fetched from elsewhere, no markup is ever made of text (Trusted Types),
no other page shows this one in a frame.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from starlette.responses import PlainTextResponse, Response

from gateway.admin.http.requests import path_name
from kernel.common.errors import Code, KernelError

if TYPE_CHECKING:
    from starlette.requests import Request

FILES: Final = Path(__file__).parent / "static"
INDEX: Final = "index.html"

TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}

CONTENT_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)

HEADERS: Final = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}


class Pages:
    """Handlers of the files."""

    def __init__(self, words: str = "", status: int = 404) -> None:
        """`words`: what a browser is told where there is no console, with a status; empty: there
        is one.
        """
        self._words = words
        self._status = status

    async def show_page(self, request: Request) -> Response:
        """The console, or where it is."""
        if self._words:
            return PlainTextResponse(f"{self._words}\n", self._status)
        return _sent(request, INDEX)

    async def show_file(self, request: Request) -> Response:
        """A file of the console."""
        if self._words:
            raise KernelError(Code.NOT_FOUND, self._words)
        return _sent(request, path_name(request, "file"))


def _sent(request: Request, name: str) -> Response:
    found = _files().get(name)
    if found is None:
        raise KernelError(Code.NOT_FOUND, f"the console has no file {name}")
    body, mark = found
    headers = {**HEADERS, "etag": mark}
    if request.headers.get("if-none-match") == mark:
        return Response(status_code=304, headers=headers)
    return Response(body, 200, headers, TYPES[Path(name).suffix])


@cache
def _files() -> dict[str, tuple[bytes, str]]:
    """Each with its mark, by name: some 100 KB, read once."""
    found = {}
    for file in FILES.iterdir():
        if file.suffix in TYPES:
            body = file.read_bytes()
            found[file.name] = body, f'"{sha256(body).hexdigest()[:24]}"'
    return found
