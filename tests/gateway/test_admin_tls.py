"""The admin side by HTTPS: its own port, and the commands that find it."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING
from urllib.error import URLError

import pytest

from tests.certificates import Authority
from tests.gateway.serving import environment, serving

if TYPE_CHECKING:
    from pathlib import Path


def weir(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment(**variables),
    )


@pytest.mark.parametrize("own", [True, False])
def test_the_admin_side_speaks_tls_and_commands_find_it(tmp_path: Path, own: bool) -> None:
    data = tmp_path / "data"
    settings = ["node.admin.tls=true"]
    if own:
        chain, key = Authority(tmp_path / "authority").issue()
        settings += [f"node.tls.certificate={chain}", f"node.tls.private_key={key}"]
    with serving(data, *settings) as node:
        assert node.admin_url.startswith("https://127.0.0.1:")
        assert f"admin     {node.admin_url}" in "".join(node.said)
        with pytest.raises(URLError, match="CERTIFICATE_VERIFY_FAILED"):
            urllib.request.urlopen(node.admin_url + "/livez", timeout=10)
        found = weir("health", "--data", str(data))
        assert found.returncode == 0, found.stderr
        elsewhere = weir("health", "--data", str(tmp_path), "--url", node.admin_url, WEIR_TOKEN="x")
        assert elsewhere.returncode != 0
        assert "a certificate that is not trusted here" in elsewhere.stderr
        if own:
            trusted = {"SSL_CERT_FILE": str(tmp_path / "authority" / "authority.pem")}
            login = {"WEIR_TOKEN": node.token, **trusted}
            found = weir("health", "--data", str(tmp_path), "--url", node.admin_url, **login)
            assert found.returncode == 0, found.stderr
    with serving(data) as node:
        assert node.admin_url.startswith("http://")
        assert not os.path.exists(data / "admin.crt")
        assert weir("health", "--data", str(data)).returncode == 0
