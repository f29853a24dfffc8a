"""RabbitMQ's definitions.json, thing by thing.

    vhosts              tenants, which are there before
    users, permissions, topic_permissions      users and policies (`rabbit_rights`)
    exchanges, queues, bindings                routers, topics, routes: as if AMQP had declared them
    policies, operator policies                what they say of the queues and exchanges of the
                                               document becomes those things' own settings
    vhost-limits, limits of users              limits of connections, queues

Everything else has no equal here, and is told by its name: other parameters, plugins' included,
tags, MD5 hashes of passwords, streams, what is not durable.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import msgspec

from adapters.amqp.codec.fields import Table
from adapters.amqp.errors import AmqpError
from adapters.amqp.importing.name_patterns import is_found
from adapters.amqp.importing.rabbit_rights import (
    RABBITS_OWN,
    TAGS,
    hash_of,
    policy_name,
    policy_of,
    tags,
    text,
    user_of,
    words_of_rows,
)
from adapters.amqp.names import DEFAULT_VIRTUAL_HOST, PREDECLARED
from adapters.amqp.topology import arguments, exchanges
from adapters.definitions import (
    FORMAT,
    Definitions,
    Foreign,
    PolicyDefined,
    RouteDefined,
    RouterDefined,
    TenantDefined,
    TopicDefined,
    Unlike,
    UserDefined,
    route_defined,
    router_defined,
    topic_defined,
)
from kernel.api.model import DEFAULT_GROUP, GroupOptions, RouterInfo, TopicOptions
from kernel.common.errors import UNDECODABLE, Code, KernelError
from kernel.common.limits import RESERVED_PREFIXES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adapters.amqp.importing.rabbit_rights import Row

_MARKS: Final = ("rabbit_version", "rabbitmq_version")
"""One of them is in every definitions.json."""

_NEEDLESS: Final = frozenset(
    {"ha-mode", "ha-params", "ha-sync-mode", "ha-sync-batch-size", "ha-promote-on-failure"}
    | {"ha-promote-on-shutdown", "queue-mode", "queue-version", "queue-master-locator"}
    | {"queue-leader-locator", "target-group-size", "dead-letter-strategy"}
)
"""Keys of policies that tell RabbitMQ how to store and place a queue, as no client can tell."""

_TO_QUEUES: Final = frozenset({"", "all", "queues"})
"""What policies for queues are applied to; since RabbitMQ 3.12 also to those of one type."""

_TO_EXCHANGES: Final = frozenset({"", "all", "exchanges"})

_NUMBERS: Final = frozenset(
    {"message-ttl", "expires", "max-length", "max-length-bytes", "delivery-limit"}
)
"""Of which the lower one holds, if several say one."""

_OF_QUEUES: Final = _NUMBERS | {"dead-letter-exchange", "dead-letter-routing-key", "overflow"}
_OF_EXCHANGES: Final = frozenset({"alternate-exchange"})

LIMITS: Final = {"max-connections": "connections", "max-queues": "topics"}
"""RabbitMQ's limits that have an equal, and what they are here."""

_UNTOLD: Final = frozenset({"internal_cluster_id", "cluster_name", "cluster_tags"})
"""Global parameters that RabbitMQ makes for itself."""


def read(data: bytes, tenants: Mapping[str, str]) -> Foreign | None:
    """What a document says; None if it is no definitions.json. `tenants`: by virtual host. Raises
    KernelError INVALID_ARGUMENT: it is one, and of another form than RabbitMQ writes.
    """
    try:
        document = msgspec.json.decode(data)
    except UNDECODABLE:
        return None
    if not isinstance(document, dict) or not any(mark in document for mark in _MARKS):
        return None
    try:
        return _Reader(document, tenants).read()
    except (TypeError, AttributeError, UnicodeEncodeError, struct.error) as error:
        message = f"this is not as RabbitMQ writes definitions.json: {error}"
        raise KernelError(Code.INVALID_ARGUMENT, message) from None


class _Reader:
    """Reads one document."""

    def __init__(self, document: Mapping[str, Any], tenants: Mapping[str, str]) -> None:
        self._document = document
        self._tenants = tenants
        self._unlike: list[Unlike] = []
        self._policies: dict[str, dict[str, PolicyDefined]] = {}
        self._users: dict[str, dict[str, UserDefined]] = {}
        self._limits: dict[str, dict[str, dict[str, int]]] = {}
        self._topics: dict[str, dict[str, TopicDefined]] = {}
        self._routers: dict[str, dict[str, RouterDefined]] = {}

    def read(self) -> Foreign:
        for row in self._rows("exchanges"):
            self._exchange(row)
        for row in self._rows("queues"):
            self._queue(row)
        for row in self._rows("bindings"):
            self._binding(row)
        for row in self._rows("users"):
            self._user(row)
        for row in self._rows("parameters"):
            self._parameter(row)
        for row in self._rows("global_parameters"):
            if text(row, "name") not in _UNTOLD:
                self._say(f"global parameter {text(row, 'name')}", "has no equal")
        for row in (*self._rows("policies"), *self._operator_policies()):
            self._policy_told(row)
        hosts = [text(row, "name") for row in self._rows("vhosts")]
        others = [host for part in self._parts() for host in part]
        tenants = {
            self._tenant(host): TenantDefined(
                policies=self._policies.get(host, {}),
                users=self._users.get(host, {}),
                limits=self._limits.get(host, {}),
                topics=self._topics.get(host, {}),
                routers=self._routers.get(host, {}),
            )
            for host in dict.fromkeys((*hosts, *others))
        }
        return Foreign(Definitions(format=FORMAT, tenants=tenants), self._unlike)

    def _parts(self) -> tuple[Mapping[str, object], ...]:
        return self._policies, self._users, self._limits, self._topics, self._routers

    def _rows(self, kind: str) -> list[Row]:
        rows = self._document.get(kind) or []
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise TypeError(f"{kind} is no list of objects")
        return rows

    def _tenant(self, virtual_host: str) -> str:
        return self._tenants.get(virtual_host, virtual_host)

    def _say(self, what: str, why: str) -> None:
        self._unlike.append(Unlike(what, why))

    # --- Exchanges, queues, bindings --------------------------------------------------------

    def _exchange(self, row: Row) -> None:
        host, name = text(row, "vhost"), text(row, "name")
        what = f"exchange {name} in vhost {host}"
        if name in PREDECLARED or not name:
            return
        if not row.get("durable", True) or row.get("auto_delete"):
            self._say(what, "is not kept: what is not durable is declared by who uses it")
            return
        if self._is_reserved(what, name):
            return
        given = _arguments(row)
        try:
            declared = exchanges.exchange_declaration(
                name,
                host,
                text(row, "type"),
                durable=True,
                auto_delete=False,
                internal=bool(row.get("internal")),
                arguments=Table.of(given),
            )
        except AmqpError as error:
            self._say(what, f"cannot be had: {error.explanation}")
            return
        options = declared.router_options()
        alternate = self._said(host, name, _TO_EXCHANGES, _OF_EXCHANGES).get("alternate-exchange")
        if alternate is not None and options.alternate is None:
            options = msgspec.structs.replace(options, alternate=str(alternate))
        self._routers.setdefault(host, {})[name] = router_defined(options, [])

    def _queue(self, row: Row) -> None:
        host, name = text(row, "vhost"), text(row, "name")
        what = f"queue {name} in vhost {host}"
        if not row.get("durable", True) or row.get("auto_delete") or row.get("exclusive"):
            self._say(what, "is not kept: what is not durable is declared by who uses it")
            return
        if self._is_reserved(what, name):
            return
        own = _arguments(row)
        try:
            declared = _declaration(name, host, own)
            meant = _declaration(name, host, self._with_policies(host, name, own))
        except AmqpError as error:
            self._say(what, f"cannot be had: {error.explanation}")
            return
        options = arguments.topic_options(meant, TopicOptions())
        # What a client declares is compared with the queue's own arguments, not the policies'.
        said = {arguments.ADAPTER_NAME: declared.encode()}
        options = msgspec.structs.replace(options, declarations=said)
        groups = {DEFAULT_GROUP: arguments.group_options(meant, GroupOptions())}
        self._topics.setdefault(host, {})[name] = topic_defined(options, groups)

    def _is_reserved(self, what: str, name: str) -> bool:
        prefix = next((each for each in RESERVED_PREFIXES if name.startswith(each)), None)
        if prefix is not None:
            self._say(what, f"cannot be had: names that begin with {prefix} are the server's own")
        return prefix is not None

    def _with_policies(self, host: str, name: str, own: Mapping[str, Any]) -> dict[str, Any]:
        """A queue's arguments with what policies add: of numbers the lowest, else its own first."""
        meant = dict(own)
        kinds = _TO_QUEUES | {f"{own.get('x-queue-type', 'classic')}_queues"}
        for key, value in self._said(host, name, kinds, _OF_QUEUES).items():
            argument = f"x-{key}"
            if key in _NUMBERS and isinstance(own.get(argument), int):
                meant[argument] = min(own[argument], value)
            else:
                meant.setdefault(argument, value)
        return meant

    def _said(
        self, host: str, name: str, kinds: frozenset[str], keys: frozenset[str]
    ) -> dict[str, Any]:
        """What the policies that hold for a thing say, those of operators included. `kinds`: what
        they call it.
        """
        found: dict[str, Any] = {}
        for rows in (self._rows("policies"), self._operator_policies()):
            holding = [
                row
                for row in rows
                if text(row, "vhost") == host
                and text(row, "apply-to") in kinds
                and is_found(text(row, "pattern") or ".*", name)
            ]
            if not holding:
                continue
            first = max(holding, key=lambda row: _number(row.get("priority")))
            for key, value in _object(first.get("definition")).items():
                if key not in keys:
                    continue
                is_lower = key not in _NUMBERS or key not in found or value < found[key]
                if is_lower:
                    found[key] = value
        return found

    def _operator_policies(self) -> list[Row]:
        return [
            {**_object(row.get("value")), "vhost": text(row, "vhost"), "name": text(row, "name")}
            for row in self._rows("parameters")
            if text(row, "component") == "operator_policy"
        ]

    def _policy_told(self, row: Row) -> None:
        what = f"policy {text(row, 'name')} in vhost {text(row, 'vhost')}"
        keys = _object(row.get("definition")).keys() - _NEEDLESS
        pattern = text(row, "pattern")
        if keys and is_found(pattern or ".*", "") is None:
            self._say(
                what, f"the expression {pattern!r} has no equal among patterns: it is left out"
            )
            return
        served = keys & (_OF_QUEUES | _OF_EXCHANGES)
        for key in sorted(keys - served):
            self._say(what, f"{key} has no equal")
        if served:
            why = f"{', '.join(sorted(served))}: set for what is in the document, not for later"
            self._say(what, why)

    def _binding(self, row: Row) -> None:
        host, source, target = text(row, "vhost"), text(row, "source"), text(row, "destination")
        if not source:
            return
        kind, key = text(row, "destination_type"), text(row, "routing_key")
        what = f"binding {source} -> {kind} {target} by {key!r} in vhost {host}"
        router = self._source(host, source)
        is_queue = kind == "queue"
        ends: Mapping[str, object] = (self._topics if is_queue else self._routers).get(host, {})
        if router is None or not (target in ends or (not is_queue and target in PREDECLARED)):
            self._say(what, "one of its ends cannot be had")
            return
        end = {"topic": target} if is_queue else {"router": target}
        try:
            route = exchanges.route(router, key, Table.of(_arguments(row)), **end)
        except AmqpError as error:
            self._say(what, f"cannot be had: {error.explanation}")
            return
        self._add_route(host, source, route_defined(route))

    def _source(self, host: str, name: str) -> RouterInfo | None:
        if name in PREDECLARED:
            options = exchanges.predeclared(name).router_options()
            self._routers.setdefault(host, {}).setdefault(name, router_defined(options, []))
            return RouterInfo(host, name, 0, options, ())
        defined = self._routers.get(host, {}).get(name)
        return None if defined is None else RouterInfo(host, name, 0, defined, ())

    def _add_route(self, host: str, source: str, route: RouteDefined) -> None:
        known = self._routers[host][source]
        self._routers[host][source] = msgspec.structs.replace(known, routes=[*known.routes, route])

    # --- Users, limits ----------------------------------------------------------------------

    def _user(self, row: Row) -> None:
        name = text(row, "name")
        if name == RABBITS_OWN:
            self._say(f"user {name}", "is RabbitMQ's own: here it exists while all is on loopback")
            return
        for tag in tags(row):
            if tag not in TAGS:
                self._say(f"tag {tag} of user {name}", "has no equal")
        if hash_of(row) is None:
            algorithm = text(row, "hashing_algorithm") or "unknown"
            why = f"is no hash by {algorithm} that is read here: `weir user set --password`"
            self._say(f"password of user {name}", why)
        permissions = self._rows("permissions")
        topics = self._rows("topic_permissions")
        hosts = [text(each, "vhost") for each in permissions if text(each, "user") == name]
        tenant, colon, bare = name.partition(":")
        if colon:
            # As our own management API calls a user of another tenant than the first.
            hosts = [next((host for host in self._tenants if self._tenant(host) == tenant), tenant)]
        elif not hosts or "administrator" in tags(row):
            hosts.append(DEFAULT_VIRTUAL_HOST)
        for host in dict.fromkeys(hosts):
            words = words_of_rows(row, host, permissions, topics)
            before = len(self._unlike)
            rules = words.rules(name, host, self._say)
            exact = len(self._unlike) == before
            own = bare if colon else name
            self._users.setdefault(host, {})[own] = user_of({**row, "name": own}, rules)
            if rules:
                self._policies.setdefault(host, {})[policy_name(own)] = policy_of(
                    words, rules, exact=exact
                )
            if host != DEFAULT_VIRTUAL_HOST and not colon:
                why = f"signs in as {self._tenant(host)}:{name}"
                self._say(f"user {name} in vhost {host}", why)
            self._limit(host, f"user:{own}", f"user {name}", _object(row.get("limits")))

    def _parameter(self, row: Row) -> None:
        host, component = text(row, "vhost"), text(row, "component")
        if component == "vhost-limits":
            self._limit(host, "tenant", f"vhost {host}", _object(row.get("value")))
        elif component != "operator_policy":
            self._say(f"parameter {component} {text(row, 'name')} in vhost {host}", "has no equal")

    def _limit(self, host: str, whose: str, what: str, given: Mapping[str, Any]) -> None:
        for name, value in given.items():
            kind = LIMITS.get(name)
            if kind is None or not isinstance(value, int) or value < 1:
                if value != -1:
                    self._say(f"limit {name}={value} of {what}", "has no equal")
                continue
            self._limits.setdefault(host, {}).setdefault(whose, {})[kind] = value


def _declaration(name: str, host: str, given: Mapping[str, Any]) -> arguments.QueueDeclaration:
    return arguments.queue_declaration(
        name, host, durable=True, exclusive=False, auto_delete=False, arguments=Table.of(given)
    )


def _arguments(row: Row) -> dict[str, Any]:
    return _object(row.get("arguments"))


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
