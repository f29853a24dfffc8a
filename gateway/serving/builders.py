"""Makes each protocol's adapter from the settings, by its declaration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import gateway
from adapters.base import ListenerAddress, Services
from auth.private_files.tls import server_context

if TYPE_CHECKING:
    from collections.abc import Callable
    from ssl import SSLContext

    from adapters.base import Adapter, Declaration
    from adapters.memory import GatewayMemory
    from gateway.access.identity import Identity
    from gateway.access.live_certificates import LiveCertificate
    from gateway.access.tenant_book import TenantBook
    from gateway.access.tls_failures import TlsFailures
    from gateway.config.schema import Protocol
    from gateway.reporting.node_metering import NodeMetering
    from kernel.api.client import Client
    from kernel.common.ports import Clock, Random
    from kernel.quotas.accounts import Quotas


@dataclass(frozen=True, slots=True)
class Builder:
    """What adapters are made of, of one process."""

    client: Client
    identity: Identity
    clock: Clock
    random: Random
    tls: Callable[[], LiveCertificate]
    """The certificate of this node's TLS listeners; made when first asked for."""
    client_authority: Path | None
    """Who signs the certificates of clients."""
    tls_failures: TlsFailures
    memory: GatewayMemory
    """What clients of all protocols together may make this process hold."""
    quotas: Quotas
    """What tenants, users, topics and listeners may use."""
    tenants: TenantBook
    metering: NodeMetering | None = None
    """None: switched off."""

    def build(self, declared: Declaration, protocol: Protocol) -> Adapter:
        """The adapter of an entry of protocols.yaml."""
        return declared.make(self.services(declared, protocol))

    def services(self, declared: Declaration, protocol: Protocol) -> Services:
        """What an adapter, or what is served beside it, is made of."""
        metering = self.metering
        return Services(
            settings=protocol,
            client=self.client,
            users=self.identity,
            clock=self.clock,
            random=self.random,
            memory=self.memory,
            quotas=self.quotas,
            tenant_names=self.tenants.names_in(declared.name),
            tenants_named=self.tenants.owners_in(declared.name),
            meter=None if metering is None else metering.traffic(declared),
            version=gateway.__version__,
            listeners=lambda: self._addresses(declared.name, protocol),
            certificate=lambda: self.tls().pair,
            client_authority=self.client_authority,
        )

    def _addresses(self, key: str, protocol: Protocol) -> list[ListenerAddress]:
        """Where a protocol's open listeners bind; `key`: its own in protocols.yaml."""
        return [
            ListenerAddress(
                name,
                each.host,
                each.port,
                self._context(f"{key}.{name}", each.client_certificate) if each.tls else None,
            )
            for name, each in protocol.open_listeners().items()
        ]

    def _context(self, listener: str, asks: str) -> SSLContext:
        live = self.tls()
        made = server_context(
            live.files,
            client_authority=None if asks == "none" else self.client_authority,
            is_demanded=asks == "required",
        )
        return self.tls_failures.watch(live.keep(made), listener)
