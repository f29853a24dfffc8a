"""A cluster whose processes prove themselves by certificates of one authority (mutual TLS)."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from tests.certificates import Authority
from tests.gateway import cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.gateway.serving import Process

NO_TLS = [f"node.cluster.tls.{name}=null" for name in ("certificate", "private_key", "authority")]


def settings_of(authority: Authority, trusted: Authority | None = None) -> list[str]:
    """Of a process with a certificate; `trusted`: who has signed those of the others."""
    certificate, key = authority.issue()
    return [
        f"node.cluster.tls.certificate={certificate}",
        f"node.cluster.tls.private_key={key}",
        f"node.cluster.tls.authority={(trusted or authority).file}",
    ]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[cluster.Cluster, Authority]]:
    """A cluster of one store that wants certificates, and no secret."""
    folder = tmp_path_factory.mktemp("mutual")
    authority = Authority(folder / "ours")
    with contextlib.ExitStack() as stack:
        made = cluster.Cluster(folder, stack, settings_of(authority), secret="")
        made.found()
        made.start_store(1)
        yield made, authority


def refusal(gateway: Process) -> str:
    """Why it does not serve."""
    reason: str = gateway.wait_for("waiting for the cluster")["reason"]
    assert gateway.http("GET", "/readyz", token=None).status == 503
    assert gateway.terminate() == 0
    return reason


def test_processes_with_certificates_of_one_authority_are_a_cluster(
    found: tuple[cluster.Cluster, Authority],
) -> None:
    gateway = found[0].start_gateway("ours-too").serves()
    connection = gateway.amqp()
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("sealed", durable=True)
    channel.basic_publish("", "sealed", b"message", mandatory=True)
    assert channel.basic_get("sealed", auto_ack=True)[2] == b"message"
    connection.close()


def test_a_gateway_without_such_a_certificate_is_refused_and_says_why(
    found: tuple[cluster.Cluster, Authority], tmp_path: Path
) -> None:
    made, ours = found
    theirs = Authority(tmp_path / "theirs")
    cases = {
        "trusts others": (settings_of(theirs), "certificate verify failed"),
        "signed by others": (settings_of(theirs, ours), "it may not take this certificate"),
        "has none": (NO_TLS, "it may want TLS"),
    }
    gateways = {
        name: made.start_gateway(name, *settings, secret=cluster.SECRET)
        for name, (settings, _) in cases.items()
    }
    for name, gateway in gateways.items():
        assert cases[name][1] in refusal(gateway), name
    told = [made.stores[1].wait_for("a TLS handshake failed") for _ in range(2)]
    assert {each["listener"] for each in told} == {"cluster"}
    assert {each["reason"] for each in told} == {
        "the client's certificate is of no authority known here",
        "what came is not TLS: the client uses the plain protocol on this port",
    }


def test_a_store_without_such_a_certificate_is_not_let_in_and_says_why(
    found: tuple[cluster.Cluster, Authority], tmp_path: Path
) -> None:
    made, ours = found
    made.start_store(2, *settings_of(Authority(tmp_path / "theirs"), ours))
    made.stores[2].serves()
    refused = made.stores[2].api("POST", "/cluster/join", {"same_host": True})
    message = refused.json["error"]["message"]
    assert refused.status == 503
    assert "store 1 cannot be reached: " in message
    assert "it may not take this certificate" in message
    assert made.stores.pop(2).terminate() == 0
