"""Callers: the headers of a call, turned into a client, a tenant and rights.

    x-mq-client-id     required: leases are renewed by it
    x-mq-namespace     see names
    x-mq-language      HTTP and NODE_JS are the Node client, which is told other settings
    authorization, x-mq-date-time     see auth.sign_in.mqv2

Three modes (`auth.principal.SignInMode`): verify; identify, which believes the access key named but
must know it; off, in which everyone is nobody in particular and may do everything. Clients sign a
time of whole seconds and nothing else, so the same headers come again and again: what they mean is
kept, and of it only whether key and time are still good is looked at anew.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from adapters.base import Everyone
from adapters.tree_rights import allowed, into_topic, out_of_topic
from auth.errors import AuthError
from auth.policies.policy_rules import Action, ResourceKind, permission
from auth.principal import DEFAULT_TENANT, SignInMode, split_login

from .. import errors
from ..codec.answer_encoding import Name
from ..errors import Code, RocketmqError
from ..names import effective_namespace, topic_name
from ..settings import CALLERS_MAX, CLIENT_ID_CHARACTERS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from adapters.base import CallCounter, Rights
    from auth.sign_in.mqv2 import MqV2Verifier
    from auth.users.records import AccessKey
    from kernel.api.model import TopicInfo
    from kernel.quotas.account import Account

    from ..codec.stubs import Resource
    from ..settings import RocketmqSettings

PUBLISH: Final = permission(Action.PUBLISH, ResourceKind.TOPIC)
CONSUME: Final = permission(Action.CONSUME, ResourceKind.TOPIC)
CONFIGURE: Final = permission(Action.CONFIGURE, ResourceKind.TOPIC)
INSPECT: Final = permission(Action.INSPECT, ResourceKind.TOPIC)
CONSUME_GROUP: Final = permission(Action.CONSUME, ResourceKind.GROUP)

CLIENT_ID: Final = "x-mq-client-id"
NAMESPACE: Final = "x-mq-namespace"
LANGUAGE: Final = "x-mq-language"
AUTHORIZATION: Final = "authorization"
DATE_TIME: Final = "x-mq-date-time"

NO_CREDENTIAL: Final = "Credential=,"
"""What clients without an access key send."""

_NODE: Final = frozenset({"HTTP", "NODE_JS", "NODEJS"})


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a call. One object for all calls with the same headers."""

    tenant: str
    """Of calls whose resources name no namespace of their own."""
    namespace: str
    """What the header says."""
    client_id: str
    is_node: bool
    rights: Rights
    tenants: Tenants
    is_admitted: Callable[[], bool] = field(compare=False)
    """Whether the key that signed may still sign: asked of what waits and of streams."""
    counters: dict[str, CallCounter] = field(default_factory=dict, compare=False)
    """Of the calls that were carried out, by name."""
    accounts: dict[str, Account] = field(default_factory=dict, compare=False)
    """What limits it, by listener."""

    def tenant_of(self, resource: Resource) -> tuple[str, Name]:
        """(tenant, name as the client spells it) of a topic or group. Raises FORBIDDEN."""
        name = Name(resource.resource_namespace, resource.name)
        if not name.namespace or name.namespace == self.namespace:
            return self.tenant, name
        namespace = effective_namespace(self.namespace, name)
        return self.tenants.of(namespace, self.rights), name

    def topic_to_publish(self, name: str, settings: RocketmqSettings) -> str:
        """The kernel's name of a topic to which this caller may publish.

        Raises ILLEGAL_TOPIC, FORBIDDEN.
        """
        kernel_name = topic_name(name, settings)
        self.check(self.rights.allows(PUBLISH, kernel_name), f"publish to topic {name}")
        return kernel_name

    def check_into(self, topic: TopicInfo) -> None:
        """Refuse to write to a topic of the tree without the right to that (hot). Raises
        FORBIDDEN.
        """
        if topic.options.tree:
            into = allowed(self.rights, into_topic(topic.name, topic))
            self.check(into, f"publish to tree:{topic.name}, of which the topic is part")

    def check_out_of(self, topic: TopicInfo) -> None:
        """Refuse to read a topic of the tree without the right to that (hot). Raises FORBIDDEN."""
        if topic.options.tree:
            out = allowed(self.rights, out_of_topic(topic.name, topic))
            self.check(out, f"consume tree:{topic.name}/#, of which the topic is part")

    def check_admitted(self) -> None:
        """Raises UNAUTHORIZED if calls with the same headers would not be admitted any more."""
        if not (self.is_admitted() and self.rights.is_alive()):
            raise RocketmqError(Code.UNAUTHORIZED, f"{self.rights.principal} was signed out")

    def check(self, is_allowed: bool, what: str) -> None:
        """Raises FORBIDDEN unless allowed."""
        if not is_allowed:
            message = f"{self.rights.principal} has no right to {what}"
            raise RocketmqError(Code.FORBIDDEN, message)


class Tenants:
    """Which tenant a namespace is."""

    def __init__(self, namespaces: Mapping[str, str], *, signs_in: bool) -> None:
        """`signs_in`: False if callers have no tenant of their own (mode off)."""
        self._namespaces = namespaces
        self._signs_in = signs_in

    def of(self, namespace: str, rights: Rights) -> str:
        """The tenant of a namespace, for a caller; no namespace is the caller's own tenant.

        Raises FORBIDDEN for somebody else's.
        """
        own = rights.principal.tenant
        if not namespace and self._signs_in:
            return own
        tenant = self._namespaces.get(namespace, namespace or DEFAULT_TENANT)
        if self._signs_in and tenant != own:
            message = f"{rights.principal} has no right to the namespace {namespace!a}"
            raise RocketmqError(Code.FORBIDDEN, message)
        return tenant


class Gate:
    """Admits calls. Belongs to the event loop."""

    def __init__(
        self,
        verifier: MqV2Verifier,
        mode: SignInMode,
        find_key: Callable[[str], AccessKey | None],
        rights_of: Callable[[AccessKey], Rights | None],
        rights_of_login: Callable[[str], Rights | None],
        namespaces: Mapping[str, str],
    ) -> None:
        """`verifier` works in the same `mode`; `rights_of`, and `rights_of_login`, for who has
        shown a certificate: None for a principal that is gone.
        """
        self._rights_of_login = rights_of_login
        self._verifier = verifier
        self._mode = mode
        self._find_key = find_key
        self._rights_of = rights_of
        self._tenants = Tenants(namespaces, signs_in=mode is not SignInMode.OFF)
        self._everyone: Rights = Everyone()
        self._kept: dict[tuple[object, ...], tuple[AccessKey | None, Caller, int, int]] = {}
        """By headers: key, caller, and between which times they hold."""
        self.refused = 0
        """Calls whose signature was not accepted."""

    def admit(
        self,
        metadata: Iterable[tuple[str, str | bytes]],
        now_ms: int,
        certified: str | None = None,
    ) -> Caller:
        """Who makes a call (hot); `now_ms` is wall time, `certified` the login that a certificate
        names.

        Raises RocketmqError: CLIENT_ID_REQUIRED, UNAUTHORIZED, FORBIDDEN.
        """
        get = dict(metadata).get
        shape = (
            get(AUTHORIZATION),
            get(DATE_TIME),
            get(CLIENT_ID),
            get(NAMESPACE),
            get(LANGUAGE),
            certified,
        )
        kept = self._kept.get(shape)
        if kept is not None:
            key, caller, first_ms, last_ms = kept
            in_time = first_ms <= now_ms <= last_ms
            may_sign = key is None or (in_time and self._find_key(key.key_id) is key)
            # A tenant may have another namespace by now.
            if may_sign and self._tenants.of(caller.namespace, caller.rights) == caller.tenant:
                return caller
        return self._learn(shape, now_ms)

    def _learn(self, shape: tuple[str | bytes | None, ...], now_ms: int) -> Caller:
        authorization, date_time, client_id, namespace, language, certified = map(_text, shape)
        if not client_id or len(client_id) > CLIENT_ID_CHARACTERS_MAX:
            raise RocketmqError(
                Code.CLIENT_ID_REQUIRED,
                f"the header {CLIENT_ID} is missing or has over {CLIENT_ID_CHARACTERS_MAX} "
                f"characters",
            )
        if self._mode is SignInMode.OFF:
            key: AccessKey | None = None
            rights = self._everyone
        elif certified is not None and (not authorization or NO_CREDENTIAL in authorization):
            key, rights = None, self._certified(certified)
        else:
            key, rights = self._sign_in(authorization, date_time, now_ms)
            if certified is not None and split_login(certified) != (key.tenant, key.user):
                self.refused += 1
                raise RocketmqError(Code.UNAUTHORIZED, "the certificate is another user's")
        namespace = namespace or ""
        caller = Caller(
            tenant=self._tenants.of(namespace, rights),
            namespace=namespace,
            client_id=client_id,
            is_node=(language or "").upper() in _NODE,
            rights=rights,
            tenants=self._tenants,
            is_admitted=_always if key is None else partial(self._may_sign, key),
        )
        if len(self._kept) >= CALLERS_MAX:
            self._kept.clear()
        self._kept[shape] = (key, caller, *self._verifier.holds_in(date_time))
        return caller

    def _certified(self, login: str) -> Rights:
        rights = self._rights_of_login(login)
        if rights is None:
            self.refused += 1
            message = f"there is no user {login!a}, whom the certificate names"
            raise RocketmqError(Code.UNAUTHORIZED, message)
        return rights

    def _may_sign(self, key: AccessKey) -> bool:
        found = self._find_key(key.key_id)
        return found is not None and found.signs_as(key)

    def _sign_in(
        self, authorization: str | None, date_time: str | None, now_ms: int
    ) -> tuple[AccessKey, Rights]:
        try:
            key = self._verifier.verify(authorization, date_time, now_ms)
        except AuthError as error:
            self.refused += 1
            raise errors.from_auth(error) from None
        rights = self._rights_of(key) if key is not None else None
        if key is None or rights is None:
            self.refused += 1
            message = "sign in: the authorization names no access key that is known"
            raise RocketmqError(Code.UNAUTHORIZED, message)
        return key, rights


def _always() -> bool:
    return True


def _text(value: str | bytes | None) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
