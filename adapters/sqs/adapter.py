"""What the rest of Weir knows about the SQS adapter (`adapters.base.Declaration`)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from adapters.base import WEIR, Declaration, LoginKind, TenantWord, Trial
from adapters.sqs.names import is_account
from adapters.sqs.origin import ORIGIN_BYTE

if TYPE_CHECKING:
    from adapters.base import Adapter, Services
    from auth.policies.policy_decisions import Access
    from auth.users.records import AccessKey
    from kernel.api.origins import OriginReader

_ACCOUNT_ID: Final = re.compile(r"[0-9]{12}", re.ASCII)


def make(services: Services) -> Adapter:
    """The adapter, from its entry in protocols.yaml."""
    from adapters.sqs.server import SqsAdapter
    from adapters.sqs.settings import SqsSettings
    from auth.principal import SignInMode
    from auth.sign_in.sigv4 import SigV4Verifier

    entry = services.settings
    directory, policies = services.users.directory, services.users.policies
    mode = SignInMode(entry.text("sign_in"))

    def rights_of(key: AccessKey) -> Access | None:
        principal = directory.principal_of(key)
        return None if principal is None else policies.access(principal)

    settings = SqsSettings(
        sign_in=mode,
        connections_max=entry.limit("connections_max"),
        idle_timeout_s=entry.limit("idle_timeout_s"),
        queue_count=entry.limit("queue_count"),
        deleted_recently=entry.flag("deleted_recently"),
        accounts=services.tenant_names,
        advertised={
            # A queue's path begins with the slash.
            name: each.advertised.rstrip("/")
            for name, each in entry.open_listeners().items()
            if each.advertised
        },
    )
    return SqsAdapter(
        services.client,
        services.client,
        SigV4Verifier(directory.access_key, directory.secret_of, mode),
        rights_of,
        services.listeners(),
        settings,
        clock=services.clock,
        random=services.random,
        meter=services.meter,
        memory=services.memory,
        quotas=services.quotas,
    )


def reader() -> OriginReader:
    """Of what SQS clients wrote."""
    from adapters.sqs.messages.stored import ORIGIN

    return ORIGIN


def account_fault(name: str) -> str | None:
    """What is wrong with the account id that a tenant is given."""
    if _ACCOUNT_ID.fullmatch(name) is not None:
        return None
    return f"{name!r} is no account id: that is 12 digits, in quotes"


def own_name_fault(tenant: str) -> str | None:
    """Why a tenant's own name cannot be its account."""
    if is_account(tenant):
        return None
    return "needs known_as.sqs, 12 digits in quotes: SQS cannot spell the tenant's own name"


SQS: Final = Declaration(
    name="sqs",
    title="SQS",
    origin=ORIGIN_BYTE,
    make=make,
    reader=reader,
    tenant=TenantWord(
        word="account id", shown_as="account", fault=account_fault, own_fault=own_name_fault
    ),
    login=LoginKind.ACCESS_KEY,
    trials=(
        Trial(
            "aws",
            "http",
            "AWS_ACCESS_KEY_ID=weir AWS_SECRET_ACCESS_KEY=weir-secret AWS_DEFAULT_REGION=us-east-1 "
            "aws --endpoint-url http://{address} sqs create-queue --queue-name hello",
        ),
        Trial(WEIR, "http", "{weir} bench sqs --url http://{address} --messages 5000"),
    ),
    leases_are_timed=True,
)
