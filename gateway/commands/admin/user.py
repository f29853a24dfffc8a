"""`weir user`, `weir key` and `weir policy`: who may sign in, with what, to do what.

A password is never an argument, where every process of the machine could read it: it comes from
standard input, and on a terminal it is asked for without echo.
"""

from __future__ import annotations

import getpass
import sys
from typing import Annotated, Any

import typer

from gateway.commands.common.api import path_of, tenant_option
from gateway.commands.common.options import (
    FormatOption,
    PrefixOption,
    TenantOptions,
    YesOption,
    with_groups,
)
from gateway.commands.common.output import CommandError, ExitCode, Format, Table, put
from gateway.commands.common.values import confirm, put_one, text

users = typer.Typer(help="Users of every protocol and of the admin API.", no_args_is_help=True)
keys = typer.Typer(help="Access keys, by which SQS and RocketMQ sign.", no_args_is_help=True)
policies = typer.Typer(help="Policies: what users may do.", no_args_is_help=True)

UserName = Annotated[str, typer.Argument(metavar="USER", help="Name of the user.")]
KeyId = Annotated[str, typer.Argument(metavar="KEY", help="Id of the access key.")]
PolicyName = Annotated[str, typer.Argument(metavar="POLICY", help="Name of the policy.")]
Password = Annotated[
    bool, typer.Option("--password", help="Ask for a password, or read it from standard input.")
]
Policies = Annotated[
    list[str] | None,
    typer.Option("--policy", metavar="POLICY", help="A policy to hold; may be repeated."),
]
Enabled = Annotated[
    bool | None, typer.Option("--enabled/--disabled", help="Whether it may sign in.")
]
Rules = Annotated[
    list[str],
    typer.Option(
        "--rule", metavar="RULE", help="As 'allow publish topic:orders-*'; may be repeated."
    ),
]


@users.command("ls")
@with_groups
def list_users(
    prefix: PrefixOption = "", *, server: TenantOptions, output: FormatOption = Format.TABLE
) -> None:
    """List users by name."""
    rows, _ = server.connect().pages("users", prefix=prefix)
    columns = ("name", "policies", "enabled", "has_password", "keys")
    shown = [tuple(text(row[column]) for column in columns) for row in rows]
    put({"users": rows}, Table(columns, shown), output)


@users.command("info")
@with_groups
def show_user(
    user: UserName, *, server: TenantOptions, output: FormatOption = Format.TABLE
) -> None:
    """Show one user."""
    found = server.connect().get(path_of("users", user))
    put_one(found, user, found.items(), output)


@users.command("create")
@with_groups
def create_user(
    user: UserName,
    password: Password = False,
    policy: Policies = None,
    *,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Create a user. Without a password only access keys sign it in (`weir key create USER`).

    In another tenant than `default` its login is TENANT:USER.
    """
    api = server.connect()
    body: dict[str, Any] = {"name": user, "policies": policy or []}
    if password:
        body["password"] = _read_password(user)
    made = api.post("/users", body)
    put_one(made, user, made.items(), output)


@users.command("set")
@with_groups
def set_user(
    user: UserName,
    password: Password = False,
    policy: Policies = None,
    no_policies: Annotated[
        bool, typer.Option("--no-policies", help="Take every policy away.")
    ] = False,
    enabled: Enabled = None,
    sign_out: Annotated[
        bool,
        typer.Option(
            "--sign-out",
            help="Close the connections that it has signed in by password: with --password, those "
            "that still know the old one.",
        ),
    ] = False,
    *,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Change a user; --policy replaces the whole list."""
    api = server.connect()
    body: dict[str, Any] = {"sign_out": True} if sign_out else {}
    if policy or no_policies:
        body["policies"] = policy or []
    if enabled is not None:
        body["enabled"] = enabled
    if password:
        body["password"] = _read_password(user)
    changed = api.patch(path_of("users", user), body)
    put_one(changed, user, changed.items(), output)


@users.command("rm")
@with_groups
def remove_user(
    user: UserName,
    yes: YesOption = False,
    *,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Remove a user and its access keys."""
    api = server.connect()
    confirm(f"Removing user {user} and its keys", user, yes=yes)
    api.delete(path_of("users", user))
    put({"name": user}, Table(("removed",), [(user,)]), output)


@keys.command("ls")
@with_groups
def list_keys(
    user: Annotated[str | None, typer.Argument(metavar="[USER]", help="Only its.")] = None,
    *,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """List access keys."""
    found = server.connect().get("/keys", user=user)
    columns = ("key_id", "user", "enabled")
    shown = [tuple(text(row[column]) for column in columns) for row in found["keys"]]
    put(found, Table(columns, shown), output)


@keys.command("info")
@with_groups
def show_key(key: KeyId, *, server: TenantOptions, output: FormatOption = Format.TABLE) -> None:
    """Show one access key, without its secret."""
    found = server.connect().get(path_of("keys", key))
    put_one(found, key, found.items(), output)


@keys.command("create")
@with_groups
def create_key(
    user: UserName, *, server: TenantOptions, output: FormatOption = Format.TABLE
) -> None:
    """Make an access key. Its secret is shown this once."""
    made = server.connect().post("/keys", {"user": user})
    put_one(made, made["key_id"], made.items(), output)


@keys.command("set")
@with_groups
def set_key(
    key: KeyId,
    enabled: Enabled = None,
    *,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Enable or disable an access key."""
    if enabled is None:
        raise CommandError("nothing to set: give --enabled or --disabled", ExitCode.USAGE)
    changed = server.connect().patch(path_of("keys", key), {"enabled": enabled})
    put_one(changed, key, changed.items(), output)


@keys.command("rm")
@with_groups
def remove_key(
    key: KeyId,
    yes: YesOption = False,
    *,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Remove an access key."""
    api = server.connect()
    confirm(f"Removing access key {key}", key, yes=yes)
    api.delete(path_of("keys", key))
    put({"key_id": key}, Table(("removed",), [(key,)]), output)


@policies.command("ls")
@with_groups
def list_policies(*, server: TenantOptions, output: FormatOption = Format.TABLE) -> None:
    """List policies, the built-in ones first."""
    found = server.connect().get("/policies")
    shown = [
        (row["name"], text(row["is_built_in"]), "; ".join(row["rules"]))
        for row in found["policies"]
    ]
    put(found, Table(("name", "built_in", "rules"), shown), output)


@policies.command("info")
@with_groups
def show_policy(
    policy: PolicyName, *, server: TenantOptions, output: FormatOption = Format.TABLE
) -> None:
    """Show one policy, rule by rule."""
    _show_policy(server.connect().get(path_of("policies", policy)), output)


@policies.command("create")
@with_groups
def create_policy(
    policy: PolicyName, rule: Rules, *, server: TenantOptions, output: FormatOption = Format.TABLE
) -> None:
    """Create a policy of one or more rules."""
    api = server.connect()
    known = {each["name"] for each in api.get("/policies")["policies"]}
    if policy in known:
        again = f"weir policy set {policy}{tenant_option(server.tenant)} --rule ..."
        hint = f"`{again}` replaces its rules"
        raise CommandError(f"there is a policy {policy} already", ExitCode.FAILED, hint)
    _show_policy(api.put(path_of("policies", policy), {"rules": rule}), output)


@policies.command("set")
@with_groups
def set_policy(
    policy: PolicyName, rule: Rules, *, server: TenantOptions, output: FormatOption = Format.TABLE
) -> None:
    """Replace the rules of a policy; who holds it is bound by the new ones at once."""
    api = server.connect()
    api.get(path_of("policies", policy))
    _show_policy(api.put(path_of("policies", policy), {"rules": rule}), output)


@policies.command("rm")
@with_groups
def remove_policy(
    policy: PolicyName,
    yes: YesOption = False,
    *,
    server: TenantOptions,
    output: FormatOption = Format.TABLE,
) -> None:
    """Remove a policy that no user holds."""
    api = server.connect()
    confirm(f"Removing policy {policy}", policy, yes=yes)
    api.delete(path_of("policies", policy))
    put({"name": policy}, Table(("removed",), [(policy,)]), output)


def _show_policy(policy: dict[str, Any], output: Format) -> None:
    rows: list[tuple[str, object]] = [
        ("name", policy["name"]),
        ("built in", policy["is_built_in"]),
        *((f"rule {number}", rule) for number, rule in enumerate(policy["rules"], start=1)),
    ]
    put_one(policy, policy["name"], rows, output)


def _read_password(user: str) -> str:
    """The password for a user. Raises CommandError (usage) if there is none."""
    if sys.stdin.isatty():
        password = getpass.getpass(f"Password for {user}: ", stream=sys.stderr)
        if getpass.getpass("Once more: ", stream=sys.stderr) != password:
            raise CommandError("nothing was done: the two passwords differ")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise CommandError("no password was given", ExitCode.USAGE)
    return password
