"""The settings of a cluster: what they must say in each role, and where the secret comes from."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from auth.errors import AuthError
from gateway.config.cluster_settings import (
    SECRET_VARIABLE,
    address_of,
    gateway_address,
    host_label,
    open_security,
    parse_address,
    parse_peer,
    peers_of,
    spell_address,
)
from gateway.config.loading import ConfigError, Settings, load

PLAIN = "node.insecure.plain_text=true"
STORE = ("node.role=store", "node.cluster.number=3")
GATEWAY = ("node.role=gateway", "node.cluster.peers=1@store-1:7400")


def settings(*assignments: str) -> Settings:
    return load(None, assignments, {}).settings


def refused(*assignments: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        settings(*assignments)
    return [str(problem) for problem in caught.value.problems]


def secret_file(folder: Path, content: bytes, mode: int = 0o600) -> str:
    file = folder / "secret"
    file.write_bytes(content)
    file.chmod(mode)
    return f"node.cluster.secret_file={file}"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("store-1:7400", ("store-1", 7400)),
        ("10.0.0.1:1", ("10.0.0.1", 1)),
        ("[fd00::1]:7400", ("fd00::1", 7400)),
    ],
)
def test_an_address_is_host_and_port(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address
    assert spell_address(address) == text
    assert parse_peer(f"65535@{text}") == (65_535, address)


@pytest.mark.parametrize(
    "text",
    ["", "store-1", ":7400", "store-1:", "store-1:0", "store-1:65536", "fd00::1:7400", "a:x"],
)
def test_what_is_no_address_is_refused_with_the_form_it_should_have(text: str) -> None:
    (problem,) = refused(*STORE, f"node.cluster.address={text or ' '}")
    assert "node.cluster.address: " in problem
    assert "HOST:PORT" in problem or "port from 1" in problem


@pytest.mark.parametrize("text", ["store-1:7400", "x@store-1:7400", "0@a:1", "65536@a:1", "1@a"])
def test_what_is_no_peer_is_refused(text: str) -> None:
    (problem,) = refused(*STORE, f"node.cluster.peers={text}")
    assert problem.startswith("node.cluster.peers: ")


def test_a_list_of_peers_comes_by_flag_too() -> None:
    found = settings(*STORE, "node.cluster.peers=1@a:7400, 2@b:7401")
    assert peers_of(found.node.cluster) == {1: ("a", 7400), 2: ("b", 7401)}
    (problem,) = refused(*STORE, "node.cluster.peers=1@a:7400,1@b:7401")
    assert "names store 1 twice" in problem


def test_a_store_is_reached_where_it_listens_unless_it_says_otherwise() -> None:
    assert address_of(settings(*STORE, "node.store.port=7411")) == ("127.0.0.1", 7411)
    everywhere = (*STORE, PLAIN, "node.store.host=0.0.0.0")
    assert address_of(settings(*everywhere, "node.cluster.address=s3:7400")) == ("s3", 7400)
    (problem,) = refused(*everywhere)
    assert "others cannot reach this store at 0.0.0.0" in problem
    (problem,) = refused(*STORE, "node.store.port=0")
    assert "node.cluster.address: is needed" in problem


def test_a_gateway_is_reached_where_it_listens_unless_it_says_otherwise() -> None:
    bound = ("127.0.0.1", 40_123)
    assert gateway_address(settings(*GATEWAY), bound) == "127.0.0.1:40123"
    everywhere = (*GATEWAY, PLAIN, "node.mesh.host=0.0.0.0", "node.mesh.port=7500")
    (problem,) = refused(*everywhere)
    assert "others cannot reach this gateway at 0.0.0.0" in problem
    told = settings(*everywhere, "node.cluster.address=[fd00::1]:7500")
    assert gateway_address(told, bound) == "[fd00::1]:7500"
    assert ("node", "mesh") in told.open_listeners()
    (problem,) = refused("node.mesh.port=1")
    assert "is for the roles store and gateway" in problem


def test_a_store_has_a_number_and_a_gateway_peers() -> None:
    (problem,) = refused("node.role=store")
    assert problem.startswith("node.cluster.number: is needed")
    (problem,) = refused("node.role=gateway")
    assert problem.startswith("node.cluster.peers: is needed")
    (problem,) = refused(*GATEWAY, "node.cluster.number=4")
    assert "a gateway has no number" in problem


def test_weir_serve_refuses_what_it_would_ignore() -> None:
    for setting in ("node.cluster.number=1", "node.store.port=7401", "node.cluster.name=x"):
        (problem,) = refused(setting)
        assert "is for the roles store and gateway" in problem
        assert "run `weir store` and `weir gateway`" in problem


def test_the_addresses_of_a_process_are_those_of_its_role() -> None:
    store = settings(*STORE).open_listeners()
    assert set(store) == {("node", "admin"), ("node", "store")}
    gateway = settings(*GATEWAY).open_listeners()
    assert ("node", "store") not in gateway
    assert gateway.keys() - settings().open_listeners().keys() == {("node", "mesh")}


def test_a_store_is_labelled_with_its_machine_unless_told_otherwise() -> None:
    assert host_label(settings(*STORE).node.cluster)
    assert host_label(settings(*STORE, "node.cluster.host=rack-7").node.cluster) == "rack-7"


def test_the_secret_is_read_from_the_variable_or_the_file(tmp_path: Path) -> None:
    flag = secret_file(tmp_path, b"sixteen bytes or more\n")
    cluster = settings(*STORE, flag).node.cluster
    assert open_security(cluster, {}).secret == b"sixteen bytes or more"
    given = {SECRET_VARIABLE: "another one of sixteen"}
    security = open_security(cluster, given)
    assert security.secret == b"another one of sixteen"
    assert (security.server_tls, security.client_tls) == (None, None)
    assert "another" not in repr(security)


def test_a_secret_that_is_missing_short_or_open_to_others_is_told(tmp_path: Path) -> None:
    with pytest.raises(AuthError, match=r"set node\.cluster\.secret_file, or .*CLUSTER_SECRET"):
        open_security(settings(*STORE).node.cluster, {})
    missing = settings(*STORE, f"node.cluster.secret_file={tmp_path}/none").node.cluster
    with pytest.raises(AuthError, match="No such file"):
        open_security(missing, {})
    short = settings(*STORE, secret_file(tmp_path, b"short")).node.cluster
    with pytest.raises(AuthError, match="less than 16 bytes") as told:
        open_security(short, {})
    assert "short " not in str(told.value)
    public = settings(*STORE, secret_file(tmp_path, b"x" * 40, 0o644)).node.cluster
    with pytest.raises(AuthError, match="chmod 600"):
        open_security(public, {})


def test_mutual_tls_needs_all_three_files_and_then_no_secret(tmp_path: Path) -> None:
    certificate, key = pair(tmp_path)
    files = (
        f"node.cluster.tls.certificate={certificate}",
        f"node.cluster.tls.private_key={key}",
        f"node.cluster.tls.authority={certificate}",
    )
    (problem,) = refused(*STORE, *files[:2])
    assert problem.startswith("node.cluster.tls.authority: is needed")
    security = open_security(settings(*STORE, *files).node.cluster, {})
    assert security.secret == b""
    assert security.server_tls is not None
    assert security.server_tls.verify_mode is ssl.CERT_REQUIRED
    assert security.client_tls is not None
    assert security.client_tls.check_hostname
    wrong = (*files[:2], f"node.cluster.tls.authority={key}")
    with pytest.raises(AuthError, match="no usable authority"):
        open_security(settings(*STORE, *wrong).node.cluster, {})


def pair(folder: Path) -> tuple[Path, Path]:
    """A certificate that is its own authority, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "store-1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    chain, private = folder / "chain.pem", folder / "key.pem"
    chain.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return chain, private


@pytest.mark.parametrize("role", ["store", "gateway"])
def test_the_settings_files_for_several_machines_can_be_used(role: str) -> None:
    file = Path(__file__).parents[2] / "deploy" / "systemd" / f"{role}.yaml"
    assert load(file, [f"node.role={role}"], environ={}).settings.node.role == role


def test_an_address_that_only_clients_on_the_move_are_told_is_for_gateways() -> None:
    told = "amqp.listeners.tcp.advertised=mq.example.org:5672"
    assert settings(*GATEWAY, told).protocols["amqp"].listeners["tcp"].advertised
    (problem,) = refused(told)
    assert "is told by gateways of a cluster" in problem
