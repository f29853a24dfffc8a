"""The settings of a cluster, read: who the peers are, what the secret is, which rules hold.

WEIR_CLUSTER_SECRET, else node.cluster.secret_file     the secret; never part of the settings,
                                                       so that no listing can show it
"""

from __future__ import annotations

import os
import platform
import ssl
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from auth.errors import AuthCode, AuthError
from auth.private_files.files import read_private
from auth.private_files.tls import CertificateFiles, client_context, server_context
from gateway.config.schema import NODE_NUMBER_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from adapters.base import Declaration
    from gateway.config.path import Path
    from gateway.config.schema import Cluster, Settings

SECRET_VARIABLE = "WEIR_CLUSTER_SECRET"  # noqa: S105 - the name of a variable
SECRET_BYTES_MIN = 16
"""Nobody guesses so many bytes of chance."""

ANYWHERE = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared with, not bound
"""Hosts that can be listened on and not be dialled."""

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Security:
    """How the processes of a cluster prove to each other that they belong to it."""

    secret: bytes
    """Empty: certificates alone prove it."""
    server_tls: ssl.SSLContext | None
    client_tls: ssl.SSLContext | None
    files: CertificateFiles | None = None
    """What both of them show."""

    def __repr__(self) -> str:
        return "Security(...)"


def parse_address(text: str) -> Address:
    """`HOST:PORT`, an IPv6 host in brackets. ValueError."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    if not colon or not host or (":" in host and not text.startswith("[")):
        raise ValueError(f"{text!r} is not HOST:PORT")
    if not (port.isascii() and port.isdigit()) or not 0 < int(port) <= 65_535:
        raise ValueError(f"{text!r} has no port from 1 to 65535")
    return host, int(port)


def spell_address(address: Address) -> str:
    """Inverse of `parse_address`."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_peer(text: str) -> tuple[int, Address]:
    """`NUMBER@HOST:PORT`. ValueError."""
    number, at, address = text.partition("@")
    if not at or not (number.isascii() and number.isdigit()):
        raise ValueError(f"{text!r} is not NUMBER@HOST:PORT")
    if not 1 <= int(number) <= NODE_NUMBER_MAX:
        raise ValueError(f"{text!r} has no number from 1 to {NODE_NUMBER_MAX}")
    return int(number), parse_address(address)


def peers_of(cluster: Cluster) -> dict[int, Address]:
    """Addresses of the stores named, by number; the settings have been checked."""
    return dict(parse_peer(each) for each in cluster.peers)


def address_of(settings: Settings) -> Address:
    """Where others reach this store; the settings have been checked."""
    if settings.node.cluster.address is not None:
        return parse_address(settings.node.cluster.address)
    return settings.node.store.host, settings.node.store.port


def gateway_address(settings: Settings, bound: Address) -> str:
    """Where other gateways reach this one, which listens at `bound`."""
    if settings.node.cluster.address is not None:
        return settings.node.cluster.address
    return spell_address((settings.node.mesh.host, bound[1]))


def host_label(cluster: Cluster) -> str:
    """What fails together with this store."""
    return cluster.host or platform.node()


_ONLY_IN_CLUSTERS = (
    "is for the roles store and gateway: `weir serve` is both in one process and belongs to no "
    "cluster; beside one another run `weir store` and `weir gateway`"
)


def cluster_findings(
    settings: Settings, declared: Mapping[str, Declaration], changed: Sequence[Path]
) -> Iterator[tuple[Path, str]]:
    """What is wrong with the settings of a cluster: where, and what."""
    at = ("node", "cluster")
    cluster, role = settings.node.cluster, settings.node.role
    if role == "all":
        for path in changed:
            if path[:2] in {at, ("node", "store"), ("node", "mesh")}:
                yield path, _ONLY_IN_CLUSTERS
            if (
                path[-1] == "advertised"
                and path[1] in declared
                and declared[path[1]].tells_address_only_to_move
            ):
                yield path, "is told by gateways of a cluster, to clients that are to go to another"
        return
    yield from _address_findings(settings)
    tls = cluster.tls
    given = {name: getattr(tls, name) for name in ("certificate", "private_key", "authority")}
    if any(given.values()):
        for name, value in given.items():
            if value is None:
                yield (*at, "tls", name), "is needed: the three of node.cluster.tls go together"
    if cluster.replicas and cluster.replicas % 2 == 0:
        yield (*at, "replicas"), "is odd: of 4 replicas no more stores may be lost than of 3"
    if role == "store" and not cluster.number:
        yield (*at, "number"), "is needed: each store of a cluster has a number of its own, from 1"
    if role == "gateway" and cluster.number:
        yield (*at, "number"), "is for stores: a gateway has no number"
    if role == "gateway" and not cluster.peers:
        yield (
            (*at, "peers"),
            "is needed: a gateway finds its cluster by NUMBER@HOST:PORT of a store",
        )


def _address_findings(settings: Settings) -> Iterator[tuple[Path, str]]:
    at = ("node", "cluster")
    cluster = settings.node.cluster
    seen: set[int] = set()
    for text in cluster.peers:
        try:
            number, _ = parse_peer(text)
        except ValueError as error:
            yield (*at, "peers"), str(error)
            continue
        if number in seen:
            yield (*at, "peers"), f"names store {number} twice"
        seen.add(number)
    if cluster.address is not None:
        try:
            parse_address(cluster.address)
        except ValueError as error:
            yield (*at, "address"), str(error)
    elif settings.node.role == "store" and settings.node.store.host in ANYWHERE:
        host = settings.node.store.host
        yield (*at, "address"), f"is needed: others cannot reach this store at {host}"
    elif settings.node.role == "gateway" and settings.node.mesh.host in ANYWHERE:
        host = settings.node.mesh.host
        yield (*at, "address"), f"is needed: others cannot reach this gateway at {host}"
    elif settings.node.role == "store" and not settings.node.store.port:
        yield (*at, "address"), "is needed: others cannot know the port that the system will choose"


def open_security(cluster: Cluster, environ: Mapping[str, str] = os.environ) -> Security:
    """The secret and the TLS contexts. Raises AuthError: UNSAFE_FILE (others may read the secret),
    DAMAGED (too short, no usable certificate), NOT_FOUND (neither secret nor certificate is given).
    """
    secret = _secret(cluster, environ)
    tls = cluster.tls
    if tls.certificate is None or tls.private_key is None or tls.authority is None:
        if not secret:
            message = (
                "a cluster needs a secret that all of its processes share: put one into a file and "
                f"set node.cluster.secret_file, or into the variable {SECRET_VARIABLE} (or set "
                "node.cluster.tls)"
            )
            raise AuthError(AuthCode.NOT_FOUND, message)
        return Security(secret, None, None)
    files = CertificateFiles(FilePath(tls.certificate), FilePath(tls.private_key))
    authority = FilePath(tls.authority)
    return Security(
        secret,
        server_context(files, client_authority=authority),
        client_context(files, authority),
        files,
    )


def _secret(cluster: Cluster, environ: Mapping[str, str]) -> bytes:
    given = environ.get(SECRET_VARIABLE, "").strip().encode()
    name = SECRET_VARIABLE
    if not given and cluster.secret_file is not None:
        name = cluster.secret_file
        try:
            given = read_private(FilePath(name)).strip()
        except OSError as error:
            message = f"the cluster's secret cannot be read: {name}: {error.strerror}"
            raise AuthError(AuthCode.NOT_FOUND, message) from None
    if given and len(given) < SECRET_BYTES_MIN:
        message = f"the secret in {name} has less than {SECRET_BYTES_MIN} bytes"
        raise AuthError(AuthCode.DAMAGED, message)
    return given
