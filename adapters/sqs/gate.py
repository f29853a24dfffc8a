"""Authentication of requests: a signature, turned into a tenant, an account and rights.

Three modes (`auth.principal.SignInMode`): verify; identify, which believes the access key named but
must know it; off, in which everyone is nobody in particular, of the built-in tenant, and may do
everything. The region is the one that the request was signed for: it decides nothing and is echoed
in ARNs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from adapters.base import Everyone
from auth.errors import AuthError
from auth.policies.policy_rules import Action, ResourceKind, permission
from auth.principal import DEFAULT_TENANT, SignInMode
from auth.sign_in import sigv4

from . import error_codes as errors
from . import error_mapping as kernel_errors
from .error_codes import SqsError
from .messages import native
from .messages.native import NativeBlock
from .settings import CALLERS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from adapters.base import CallCounter, Rights
    from auth.sign_in.sigv4 import SigV4Verifier
    from auth.users.records import AccessKey
    from kernel.quotas.account import Account

    from .http.request_response import HttpRequest

PUBLISH: Final = permission(Action.PUBLISH, ResourceKind.TOPIC)
CONSUME: Final = permission(Action.CONSUME, ResourceKind.TOPIC)
CONFIGURE: Final = permission(Action.CONFIGURE, ResourceKind.TOPIC)
INSPECT: Final = permission(Action.INSPECT, ResourceKind.TOPIC)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request, as the actions need it. One object for all requests of a key."""

    tenant: str
    account: str
    region: str
    rights: Rights
    sender_id: str | None
    """What receivers are told as SenderId; None: nobody in particular, the account stands in."""
    plain_native: bytes
    """Native block of a message without attributes from this caller: that of most messages."""
    is_admitted: Callable[[], bool] = field(compare=False)
    """Whether the key that signed may still sign: asked of what waits."""
    counters: dict[str, CallCounter] = field(default_factory=dict, compare=False)
    """Of the calls that were carried out, by action."""
    accounts: dict[str, Account] = field(default_factory=dict, compare=False)
    """What limits it, by listener."""


class Gate:
    """Admits requests. Belongs to the event loop."""

    def __init__(
        self,
        verifier: SigV4Verifier,
        mode: SignInMode,
        rights_of: Callable[[AccessKey], Rights | None],
        accounts: Mapping[str, str],
    ) -> None:
        """`verifier` works in the same `mode`; `rights_of`: None for a principal that is gone."""
        self._verifier = verifier
        self._mode = mode
        self._rights_of = rights_of
        self._accounts = accounts
        self._callers: dict[tuple[str, str], tuple[AccessKey, Caller]] = {}
        self._everyone: dict[str, Caller] = {}

    def admit(self, request: HttpRequest, now_s: int) -> Caller:
        """Who sent a request; `now_s`: seconds since 1970.

        Raises SqsError: every refusal of auth.sign_in.sigv4, and InvalidClientTokenId for an
        unknown key.
        """
        signed = sigv4.HttpRequest(
            request.method, request.raw_path, request.query, request.headers, request.body
        )
        try:
            key, region, _ = self._verifier.verify(signed, now_s)
        except AuthError as error:
            raise kernel_errors.from_auth(error) from None
        if self._mode is SignInMode.OFF:
            return self._anyone(region)
        if key is None:
            raise SqsError(errors.INVALID_CLIENT_TOKEN_ID)
        slot = (key.key_id, region)
        known = self._callers.get(slot)
        # A tenant may have another account by now.
        if known is not None and known[0] is key and known[1].account == self._account(key.tenant):
            return known[1]
        rights = self._rights_of(key)
        if rights is None:
            raise SqsError(errors.INVALID_CLIENT_TOKEN_ID)
        principal = rights.principal
        is_admitted = partial(self._verifier.knows, key)
        caller = self._caller(principal.tenant, region, rights, principal.name, is_admitted)
        if len(self._callers) >= CALLERS_MAX:
            self._callers.clear()
        self._callers[slot] = (key, caller)
        return caller

    def check_head(self, request: HttpRequest, now_s: int) -> None:
        """Refuse a request, as `admit` would, of which there is only the head yet."""
        signed = sigv4.HttpRequest(
            request.method, request.raw_path, request.query, request.headers, b""
        )
        try:
            key = self._verifier.check_head(signed, now_s)
        except AuthError as error:
            raise kernel_errors.from_auth(error) from None
        if self._mode is not SignInMode.OFF and (key is None or self._rights_of(key) is None):
            raise SqsError(errors.INVALID_CLIENT_TOKEN_ID)

    def _account(self, tenant: str) -> str:
        return self._accounts.get(tenant, tenant)

    def _anyone(self, region: str) -> Caller:
        caller = self._everyone.get(region)
        if caller is None:
            if len(self._everyone) >= CALLERS_MAX:
                self._everyone.clear()
            caller = self._caller(DEFAULT_TENANT, region, Everyone(), None, _always)
            self._everyone[region] = caller
        return caller

    def _caller(
        self,
        tenant: str,
        region: str,
        rights: Rights,
        sender: str | None,
        is_admitted: Callable[[], bool],
    ) -> Caller:
        return Caller(
            tenant=tenant,
            account=self._account(tenant),
            region=region,
            rights=rights,
            sender_id=sender,
            plain_native=native.encode(NativeBlock(sender_id=sender)),
            is_admitted=is_admitted,
        )


def _always() -> bool:
    return True
