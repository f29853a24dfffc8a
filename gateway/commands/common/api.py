"""The command line's side of the admin API: finding a server, asking it, wording what went wrong.

    address    --url, else WEIR_URL, else the context's, else DATA/admin.url, else
               http://127.0.0.1:15673
    login      WEIR_LOGIN, else the context's; and WEIR_PASSWORD, else what it keeps or is typed
    token      without a login: WEIR_TOKEN, else the context's, else DATA/admin.token
    DATA       --data, else WEIR_NODE__DATA, else weir-data
    tenant     --tenant, else WEIR_TENANT, else the context's, else that of the login, else default
    context    where neither address nor DATA is named (`contexts`)

The token of a data directory is sent to this machine alone: another one is told WEIR_LOGIN or
WEIR_TOKEN. Neither is sent to one that does not show who it is (`reaching`).
"""

from __future__ import annotations

import base64
import getpass
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from auth.errors import AuthError
from auth.loopback import is_loopback
from auth.principal import split_login
from auth.private_files.tokens import read_admin_token
from gateway.admin.address import read_address
from gateway.commands.common.contexts import chosen
from gateway.commands.common.output import CommandError, ExitCode
from gateway.commands.common.reaching import (
    DEFAULT_URL,
    FAILURES,
    NoAnswer,
    checked_url,
    connection_to,
    failure,
    host_of,
    reach,
    trust,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from gateway.commands.common.contexts import Context

DEFAULT_DATA = "weir-data"
API_PATH = "/api/v1"

PAGE_ROWS = 1_000
"""The most that the server lists at once."""

TIMEOUT_S = 60
"""Longer than the server takes for anything: a publish fails after 30 s."""

ANSWER_BYTES_MAX = 64 * 1024 * 1024
"""A page of messages has at most 8 MiB and one message, in JSON at most a few times as much."""

_EXIT_CODES = {400: ExitCode.USAGE, 404: ExitCode.NOT_FOUND, 413: ExitCode.USAGE}
"""By HTTP status; every other failure is ExitCode.FAILED."""

Facts = dict[str, Any]
"""An answer: a JSON object, read by the names that gateway/admin gives."""


class _Answer(Facts):
    """An object of an answer, whose reader may ask for what a Weir would have said. What YAML takes
    is `msgspec.to_builtins` of it.
    """

    def __missing__(self, name: str) -> object:
        raise NoAnswer(
            f"the answer does not say {name!r}: the server is no Weir, or one of another version"
        )


@dataclass(frozen=True, slots=True)
class Api:
    """One server's admin API."""

    url: str
    authorization: str
    """The header of that name."""
    tenant: str | None = None
    """Whose things are asked for; None: that of the login."""
    tls: ssl.SSLContext | None = None
    """Whom to trust, if the address begins with https."""

    def get(self, path: str, **query: object) -> Facts:
        """What there is at a path; a query of None is left out."""
        return self.call("GET", path, query=query)

    def pages(
        self,
        kind: str,
        most: int | None = None,
        heard: Callable[[Facts], None] = lambda _page: None,
        **query: object,
    ) -> tuple[list[Facts], str | None]:
        """The rows of a list such as `users`, asked for page by page, `most` of them if that is
        given; and after which name it goes on. `heard` is told each page as it came.
        """
        rows: list[Facts] = []
        after: str | None = ""
        while after is not None and (most is None or len(rows) < most):
            limit = PAGE_ROWS if most is None else min(PAGE_ROWS, most - len(rows))
            page = self.get(f"/{kind}", after=after, limit=limit, **query)
            rows += page[kind]
            heard(page)
            after = page["next"]
        return rows, after

    def post(self, path: str, body: object) -> Facts:
        return self.call("POST", path, body)

    def patch(self, path: str, body: object) -> Facts:
        return self.call("PATCH", path, body)

    def put(self, path: str, body: object) -> Facts:
        return self.call("PUT", path, body)

    def delete(self, path: str, **query: object) -> Facts:
        return self.call("DELETE", path, query=query)

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        query: Mapping[str, object] | None = None,
        good: tuple[int, ...] = (200, 201, 204),
    ) -> Facts:
        """The JSON object of an answer; an empty one if there is no body. `body`: a value, or
        JSON in bytes.

        Raises NoAnswer if none came, CommandError for a status that is not in `good`.
        """
        asked = {"tenant": self.tenant, **(query or {})}
        status, data = self._exchange(method, _with_query(API_PATH + path, asked), body)
        try:
            answer = json.loads(data or b"{}", object_hook=_Answer)
        except (ValueError, RecursionError):
            answer = None
        if status in good and isinstance(answer, dict):
            return answer
        if status in good:
            raise NoAnswer(f"{self.url} is not a Weir admin API")
        raise _error(status, answer, self.url)

    def _exchange(self, method: str, path: str, body: object) -> tuple[int, bytes]:
        connection = connection_to(self.url, TIMEOUT_S, self.tls)
        headers = {"Authorization": self.authorization}
        sent = None
        if body is not None:
            sent = body if isinstance(body, bytes) else json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        try:
            connection.request(method, path, sent, headers)
            response = connection.getresponse()
            data = response.read(ANSWER_BYTES_MAX + 1)
        except FAILURES as error:
            raise failure(self.url, error) from error
        finally:
            connection.close()
        if len(data) > ANSWER_BYTES_MAX:
            raise CommandError(f"the answer has more than {ANSWER_BYTES_MAX} bytes: ask for less")
        return response.status, data


def connect(url: str | None, data: Path | None, tenant: str | None = None) -> Api:
    """The server that the options and the environment name, for what belongs to a tenant.

    Raises NoAnswer if it is down, before anything is asked of whoever types; else CommandError.
    """
    context = chosen() if url is None and data is None else None
    directory = data or Path(DEFAULT_DATA)
    kept = context.url if context is not None else None
    found = checked_url(url or kept or read_address(directory) or DEFAULT_URL)
    tls = trust(found, directory)
    reach(found, tls)
    if tenant is None and context is not None:
        tenant = context.tenant
    return Api(found, _authorization(context, directory, host_of(found)), tenant, tls)


def _authorization(context: Context | None, directory: Path, host: str) -> str:
    """The header of that name. Raises CommandError."""
    login = os.environ.get("WEIR_LOGIN", "")
    if login:
        return _basic(login)
    if context is not None and not os.environ.get("WEIR_TOKEN"):
        if context.login is not None:
            return _basic(context.login, context.secret)
        if context.secret is not None:
            return _bearer(context.secret)
    return _bearer(_token(directory, host))


def _bearer(token: str) -> str:
    if not token.isascii() or not token.isprintable():
        message = (
            "the token has characters that no admin.token has: is all of it that file's content?"
        )
        raise CommandError(message, ExitCode.USAGE)
    return f"Bearer {token}"


def _basic(login: str, kept: str | None = None) -> str:
    """Credentials of a login as people type it, with the password of the environment, kept or
    typed.
    """
    password = os.environ.get("WEIR_PASSWORD", kept)
    if password is None:
        if not sys.stdin.isatty():
            message = f"there is no password for {login}: put it in the variable WEIR_PASSWORD"
            raise CommandError(message, ExitCode.USAGE)
        password = getpass.getpass(f"Password for {login}: ", stream=sys.stderr)
    tenant, user = split_login(login)
    # What the environment holds need not be UTF-8; the server says that it is nobody's.
    login_bytes = f"{tenant}:{user}:{password}".encode(errors="surrogateescape")
    return "Basic " + base64.b64encode(login_bytes).decode()


def _token(directory: Path, host: str) -> str:
    given = os.environ.get("WEIR_TOKEN", "").strip()
    if given:
        return given
    if not is_loopback(host):
        raise CommandError(
            f"the token in {directory} is only sent to this machine, and {host} is another",
            ExitCode.FAILED,
            f"put the content of admin.token of {host} in the variable WEIR_TOKEN, or a login in"
            " WEIR_LOGIN",
        )
    try:
        return read_admin_token(directory).text
    except FileNotFoundError:
        raise CommandError(
            f"there is no admin.token in {directory}: no server has come up with it yet",
            ExitCode.FAILED,
            "name the server's data directory with --data, its token in WEIR_TOKEN, or a login in"
            " WEIR_LOGIN",
        ) from None
    except PermissionError as error:
        message = f"the admin token in {directory} cannot be read: {error.strerror}"
        hint = "run this as the user that the server runs as, or as root"
        raise CommandError(message, ExitCode.FAILED, hint) from error
    except (AuthError, OSError) as error:
        raise CommandError(f"the admin token cannot be read: {error}") from error


def tenant_option(tenant: str | None) -> str:
    """What a command that is proposed needs besides, to be about the same tenant."""
    return f" --tenant {tenant}" if tenant else ""


def path_of(*parts: str) -> str:
    """A path of names, each percent-encoded."""
    return "".join("/" + quote(part, safe="") for part in parts)


def _with_query(path: str, query: Mapping[str, object]) -> str:
    given = {name: _spell(value) for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def _spell(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _error(status: int, answer: object, url: str) -> CommandError:
    facts = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(facts, dict) or "message" not in facts:
        return CommandError(f"{url} answered with status {status}")
    hint = ""
    if status == 401 and os.environ.get("WEIR_LOGIN"):
        hint = "WEIR_LOGIN is USER, or TENANT:USER, and WEIR_PASSWORD that user's password"
    elif status == 401:
        hint = "the token belongs to another server: name its data directory with --data"
    elif facts.get("retryable"):
        hint = "the same command may work if tried again"
    return CommandError(facts["message"], _EXIT_CODES.get(status, ExitCode.FAILED), hint)
