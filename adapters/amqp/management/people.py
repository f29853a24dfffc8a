"""Users, permissions and topic permissions over the management API.

A user belongs to one tenant, whose virtual host is the only one in which it may have permissions.
It is called as it signs in: `worker` of the virtual host `/`, `acme:worker` of acme.

    PUT users/worker                    tags               all of them together are the policy
    PUT permissions/%2F/worker          expressions        `rabbitmq-worker`, made as for
    PUT topic-permissions/%2F/worker    expressions        definitions.json (`rabbit_rights`)

The policy's note keeps the words, so that they read back as they were said, as long as the rules
are those that the words come to. What has no equal is refused, and nothing is changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from adapters.amqp.importing.rabbit_rights import (
    ADMINISTERS,
    ADMINISTRATOR,
    RABBITS_OWN,
    TAGS,
    Words,
    hash_of,
    hash_row,
    policy_name,
    policy_of,
    tags,
    words_of,
)
from adapters.amqp.management.administering import (
    administered,
    apply,
    ask,
    defined,
    part,
    removed,
    tenant_administered,
)
from adapters.amqp.management.pages import Page
from adapters.amqp.management.requests import Answer, Asked, Refused, bad_request, not_found
from adapters.amqp.names import DEFAULT_VIRTUAL_HOST
from adapters.definitions import PolicyDefined, TenantDefined, UserDefined
from auth.policies.built_in import ADMINISTRATOR_POLICY, FULL_POLICY
from auth.principal import DEFAULT_TENANT, split_login

if TYPE_CHECKING:
    from collections.abc import Iterator

_KINDS: Final = "policies,users"
_WORDS: Final = ("configure", "write", "read")
_EVERYTHING: Final = dict.fromkeys(_WORDS, ".*")


@dataclass(frozen=True, slots=True)
class Person:
    """A user with the policy that this API makes for it."""

    tenant: str
    host: str
    name: str
    user: UserDefined
    policy: PolicyDefined | None
    """None: there is none, or the user does not hold it."""

    @property
    def login(self) -> str:
        return login_of(self.tenant, self.name)

    @property
    def others(self) -> list[str]:
        """Policies that were given to it otherwise."""
        return [each for each in self.user.policies if each != policy_name(self.name)]

    def words(self) -> Words | None:
        """What it was permitted by this API, or a document; None: by rules of another kind."""
        if self.policy is None:
            return Words()
        return words_of(self.policy, self.name, self.host)

    @property
    def is_told(self) -> bool:
        """Whether RabbitMQ's words say all that it may do."""
        return not self.untold()

    def untold(self) -> str:
        """Why they do not; empty: they do."""
        if self.others:
            return f"it holds other policies: {', '.join(self.others)}"
        if self.words() is None:
            return f"the policy {policy_name(self.name)} was altered, and is no three expressions"
        return ""

    def tags(self) -> list[str]:
        """As RabbitMQ shows them."""
        by_rule = self.policy is not None and ADMINISTERS in self.policy.rules
        is_administrator = by_rule or ADMINISTRATOR_POLICY in self.user.policies
        return [ADMINISTRATOR] if is_administrator else ["management"]

    def permission(self) -> dict[str, str] | None:
        """Three expressions; None: it has none, or its rights cannot be said so."""
        if {ADMINISTRATOR_POLICY, FULL_POLICY} & set(self.user.policies):
            return _EVERYTHING
        words = self.words()
        return None if self.others or words is None else words.permission


def login_of(tenant: str, name: str) -> str:
    """What a user signs in as."""
    return name if tenant == DEFAULT_TENANT else f"{tenant}:{name}"


def named_user(asked: Asked, login: str) -> tuple[str, str, str]:
    """(tenant, virtual host, name) of a user. Raises Refused 401, 404: not one that the caller
    administers.
    """
    tenant, name = split_login(login)
    if ":" not in login and not asked.administers(tenant):
        # Who administers one tenant names its users without it.
        tenant = asked.own.principal.tenant
    for each, host in administered(asked):
        if each == tenant:
            return tenant, host, name
    raise not_found()


def _people(tenant: str, host: str, found: TenantDefined) -> Iterator[Person]:
    for name, user in found.users.items():
        own = policy_name(name)
        policy = found.policies.get(own) if own in user.policies else None
        yield Person(tenant, host, name, user, policy)


async def everybody(asked: Asked) -> list[Person]:
    """All users of the virtual host that the path names, or of all."""
    named = asked.names.get("vhost")
    hosts = administered(asked) if named is None else [(tenant_administered(asked, named), named)]
    people: list[Person] = []
    for tenant, host in hosts:
        people += _people(tenant, host, await defined(asked, tenant, _KINDS))
    return people


async def _person(asked: Asked, login: str) -> Person | None:
    tenant, host, name = named_user(asked, login)
    users = (await defined(asked, tenant, "users", name)).users
    if name not in users:
        return None
    own = policy_name(name)
    policies = (await defined(asked, tenant, "policies", own)).policies
    (person,) = _people(tenant, host, TenantDefined(users={name: users[name]}, policies=policies))
    return person


async def _known(asked: Asked) -> Person:
    person = await _person(asked, asked.names["user"])
    if person is None:
        raise not_found()
    return person


def _listed(asked: Asked, rows: list[dict[str, Any]]) -> Answer:
    page = Page(asked.query)
    wanted = [each for each in rows if page.wanted(str(each.get("name", each.get("user", ""))))]
    some, made = page.cut(page.sorted_by(wanted), len(rows))
    return Answer(200, made(some))


# --- Users ------------------------------------------------------------------------------------


async def list_users(asked: Asked) -> Answer:
    """All of the tenants that the caller administers."""
    return _listed(asked, [user_row(each) for each in await everybody(asked)])


async def list_without_permissions(asked: Asked) -> Answer:
    """Those who may do nothing."""
    people = await everybody(asked)
    rows = [user_row(each) for each in people if each.permission() is None and not each.others]
    return _listed(asked, rows)


async def show_user(asked: Asked) -> Answer:
    """One of them."""
    return Answer(200, user_row(await _known(asked)))


def user_row(person: Person) -> dict[str, Any]:
    """A user as RabbitMQ shows it, and as its documents have it."""
    shown = hash_row(person.user.password_hash)
    return {"name": person.login, **shown, "tags": person.tags(), "limits": {}}


async def put_user(asked: Asked) -> Answer:
    """Make or change a user: 201 if it is new. Its permissions stay."""
    body = asked.read()
    tenant, host, name = named_user(asked, asked.names["user"])
    if name == RABBITS_OWN and tenant == DEFAULT_TENANT:
        raise bad_request("guest is there by itself while all is on loopback: choose another name")
    password, hashed = _password_told(body), _hash_told(body)
    wanted = _tags_told(body, host)
    async with asked.broker.changing:
        person = await _person(asked, asked.names["user"])
        is_new = person is None
        if person is None:
            person = Person(tenant, host, name, UserDefined(), None)
        if hashed == "" and person.user.password_hash:
            raise bad_request("a password is not taken away: give another one")
        if password is None:
            await _change(asked, person, tags=wanted, password_hash=hashed or "")
        elif is_new:
            new = {"name": name, "password": password}
            await ask(asked, "POST", "/users", new, {"tenant": tenant})
            await _change(asked, person, tags=wanted)
        else:
            await _change(asked, person, tags=wanted)
            new = {"password": password}
            await ask(asked, "PATCH", f"/users/{part(name)}", new, {"tenant": tenant})
    return Answer(201 if is_new else 204)


def _password_told(body: dict[str, Any]) -> str | None:
    """The password that a request brings. Raises Refused 400."""
    password = body.get("password")
    if password is None or isinstance(password, str):
        return password or None
    raise bad_request("password is no text")


def _hash_told(body: dict[str, Any]) -> str | None:
    """The hash that it brings; None: it says nothing of one. Raises Refused 400."""
    if "password_hash" not in body:
        return None
    found = hash_of(body)
    if found is None:
        raise bad_request(
            "password_hash is base64 of a salt of 4 bytes and a sum, by hashing_algorithm "
            "rabbit_password_hashing_sha256 or rabbit_password_hashing_sha512"
        )
    return found


def _tags_told(body: dict[str, Any], host: str) -> list[str]:
    """Those of a request that are kept. Raises Refused 400."""
    told = [each.strip() for each in tags(body)]
    unknown = sorted({each for each in told if each} - TAGS)
    if unknown:
        known = ", ".join(sorted(TAGS))
        raise bad_request(f"the tag {unknown[0]} means nothing here; there are {known}")
    if ADMINISTRATOR not in told:
        return []
    if host != DEFAULT_VIRTUAL_HOST:
        raise bad_request(
            f"an administrator of the node is a user of {DEFAULT_VIRTUAL_HOST}; one of a tenant "
            "has a policy that allows `administer tenant:NAME` (`weir policy`)"
        )
    return [ADMINISTRATOR]


async def delete_user(asked: Asked) -> Answer:
    """Remove a user, and the policy that was made for it."""
    async with asked.broker.changing:
        await _remove(asked, asked.names["user"])
    return Answer(204)


async def delete_users(asked: Asked) -> Answer:
    """Remove some."""
    named = asked.read(["users"])["users"]
    if not isinstance(named, list) or not all(isinstance(each, str) for each in named):
        raise bad_request("users is no list of names")
    async with asked.broker.changing:
        for each in named:
            await _remove(asked, each)
    return Answer(204)


async def _remove(asked: Asked, login: str) -> None:
    tenant, _, name = named_user(asked, login)
    if not await removed(asked, f"/users/{part(name)}", {"tenant": tenant}):
        raise Refused(404, "Object Not Found", f"there is no user {login}")
    await _remove_policy(asked, tenant, name)


async def _remove_policy(asked: Asked, tenant: str, name: str) -> None:
    await removed(asked, f"/policies/{part(policy_name(name))}", {"tenant": tenant})


# --- Permissions ------------------------------------------------------------------------------


async def list_permissions(asked: Asked) -> Answer:
    """Those that can be said as three expressions: all, of a virtual host, or of a user."""
    people = [await _known(asked)] if "user" in asked.names else await everybody(asked)
    return _listed(asked, list(permission_rows(people)))


def permission_rows(people: list[Person]) -> Iterator[dict[str, Any]]:
    """Rows of those who have one."""
    for each in people:
        permission = each.permission()
        if permission is not None:
            yield {"user": each.login, "vhost": each.host, **permission}


async def show_permission(asked: Asked) -> Answer:
    """One user's."""
    person = await _in_its_host(asked)
    rows = list(permission_rows([person]))
    if rows:
        return Answer(200, rows[0])
    if person.user.policies:
        held = ", ".join(person.user.policies)
        reason = f"its rights are no three expressions: it holds the policies {held}"
        raise Refused(404, "Object Not Found", reason)
    raise not_found()


async def put_permission(asked: Asked) -> Answer:
    """Give a user what three expressions match, instead of what it was permitted before."""
    told = _expressions(asked.read(_WORDS), _WORDS)
    async with asked.broker.changing:
        person = await _in_its_host(asked)
        is_new = person.permission() is None
        await _change(asked, person, permission=told)
    return Answer(201 if is_new else 204)


async def delete_permission(asked: Asked) -> Answer:
    """Take it away."""
    async with asked.broker.changing:
        person = await _in_its_host(asked)
        if person.permission() is None:
            raise not_found()
        await _change(asked, person, permission=None)
    return Answer(204)


async def list_topic_permissions(asked: Asked) -> Answer:
    """All, of a virtual host, or of a user."""
    people = [await _known(asked)] if "user" in asked.names else await everybody(asked)
    return _listed(asked, list(topic_rows(people)))


def topic_rows(people: list[Person]) -> Iterator[dict[str, Any]]:
    """Rows of those who have some."""
    for each in people:
        words = each.words()
        for row in words.topics if words is not None else ():
            yield {"user": each.login, "vhost": each.host, **row}


async def show_topic_permissions(asked: Asked) -> Answer:
    """One user's, by exchange."""
    rows = list(topic_rows([await _in_its_host(asked)]))
    if not rows:
        raise not_found()
    return Answer(200, rows)


async def put_topic_permission(asked: Asked) -> Answer:
    """What keys of amq.topic a user may use."""
    words = ("exchange", "write", "read")
    told = _expressions(asked.read(words), words)
    async with asked.broker.changing:
        person = await _in_its_host(asked)
        known = person.words()
        now = known.topics if known is not None else []
        others = [each for each in now if each["exchange"] != told["exchange"]]
        await _change(asked, person, topics=[*others, told])
    return Answer(204 if len(others) < len(now) else 201)


async def delete_topic_permissions(asked: Asked) -> Answer:
    """Take all of them away, or that of one exchange."""
    async with asked.broker.changing:
        person = await _in_its_host(asked)
        known = person.words()
        exchange = asked.names.get("exchange")
        now = known.topics if known is not None else []
        kept = [each for each in now if exchange is not None and each["exchange"] != exchange]
        if len(kept) == len(now):
            raise not_found()
        await _change(asked, person, topics=kept)
    return Answer(204)


def _expressions(body: dict[str, Any], names: tuple[str, ...]) -> dict[str, str]:
    told = {name: body[name] for name in names}
    for name, value in told.items():
        if not isinstance(value, str):
            raise bad_request(f"{name} is no text")
    return told


async def _in_its_host(asked: Asked) -> Person:
    """The user that the path names, which belongs to the virtual host there. Raises Refused."""
    host, login = asked.names["vhost"], asked.names["user"]
    tenant = tenant_administered(asked, host)
    person = await _person(asked, login)
    if person is None:
        raise Refused(404, "Object Not Found", f"there is no user {login}")
    if person.tenant != tenant:
        name = login_of(tenant, person.name)
        raise bad_request(
            f"{login} is a user of the virtual host {person.host}, and has rights there alone: "
            f"make the user {name} for {host}"
        )
    return person


_STAYS: Final = object()


async def _change(
    asked: Asked,
    person: Person,
    *,
    tags: list[str] | None = None,
    permission: object = _STAYS,
    topics: list[dict[str, str]] | None = None,
    password_hash: str = "",
) -> None:
    """Have a user have other words than before, and perhaps another password. Raises Refused 400:
    they cannot be had here, and nothing is changed.
    """
    known = person.words()
    is_by_rules = known is None or bool(person.others)
    before = Words(tags=[each for each in person.tags() if each == ADMINISTRATOR])
    words = before if known is None else msgspec.structs.replace(known, tags=before.tags)
    if tags is not None:
        words = msgspec.structs.replace(words, tags=tags)
    if permission is not _STAYS:
        words = msgspec.structs.replace(words, permission=permission)
    if topics is not None:
        words = msgspec.structs.replace(words, topics=topics)
    is_the_same = words.tags == before.tags and permission is _STAYS and topics is None
    if is_by_rules and not is_the_same:
        held = ", ".join(person.user.policies)
        raise bad_request(
            f"{person.login} holds the policies {held}, which are no permissions of RabbitMQ's and "
            "would go on to grant what they do: `weir user`, `weir policy`"
        )
    user = msgspec.structs.replace(person.user, password_hash=password_hash)
    policies = {}
    if not is_the_same:
        rules = _rules(words, person)
        own = policy_name(person.name)
        user = msgspec.structs.replace(user, policies=[own] if rules else [])
        policies = {own: policy_of(words, rules, exact=True)} if rules else {}
    wanted = TenantDefined(users={person.name: user}, policies=policies)
    await apply(asked, person.tenant, _KINDS, wanted)
    if person.policy is not None and not user.policies:
        await _remove_policy(asked, person.tenant, person.name)


def _rules(words: Words, person: Person) -> list[str]:
    """Raises Refused 400: something of it has no equal."""
    told: list[str] = []
    rules = words.rules(person.name, person.host, lambda what, why: told.append(f"{what}: {why}"))
    if told:
        raise bad_request("nothing was done: " + "; ".join(told))
    return rules
