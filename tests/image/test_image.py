"""The image is built by buildah on a Debian of debootstrap, and serves: as its user, on a root file
system that nothing can write to, until SIGTERM.

It takes minutes, root, the network and both tools, so that it runs by `make test-image` alone. No
container engine runs it: it is served where buildah mounts it, by the configuration that it has:
user, environment, entry point, volume.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.gateway.serving import Process, launched
from tests.tidy.source_tree import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

TOOLS = ("buildah", "debootstrap", "unshare", "chroot")
BUILD_SECONDS_MAX = 500
WHY_NOT = (
    "only by `make test-image`"
    if os.environ.get("WEIR_TEST_IMAGE") != "1"
    else "not as root"
    if os.geteuid()
    else " ".join(f"no {each}." for each in TOOLS if shutil.which(each) is None)
)
pytestmark = [
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT),
    pytest.mark.timeout(2 * BUILD_SECONDS_MAX),
]

HOW_PIP_IS_SET_UP = ("/etc/pip.conf", "/etc/xdg/pip", "/etc/ssl/certs")
"""Of this machine: inside, pip installs from where it does outside."""


@dataclass(frozen=True, slots=True)
class Image:
    root: Path
    """Where it is mounted."""
    config: dict[str, Any]

    @property
    def environment(self) -> list[str]:
        found: list[str] = self.config["Env"]
        return found


def run(*command: str) -> str:
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"BUILDAH_ISOLATION": "chroot"},
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_SECONDS_MAX,
    )
    assert ran.returncode == 0, f"{shlex.join(command)}\n{ran.stdout[-4000:]}{ran.stderr[-4000:]}"
    return ran.stdout.strip()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    place = tmp_path_factory.mktemp("image")
    buildah = ("buildah", "--root", f"{place}/storage", "--runroot", f"{place}/run")
    include = "--include=python3,python3-venv,ca-certificates"
    run("debootstrap", "--variant=minbase", include, "bookworm", f"{place}/debian")
    try:
        debian = run(*buildah, "from", "scratch")
        run(*buildah, "copy", "--quiet", debian, f"{place}/debian", "/")
        run(*buildah, "commit", "--quiet", debian, "localhost/weir-base")
        lent = [
            word
            for each in HOW_PIP_IS_SET_UP
            if Path(each).exists()
            for word in ("--volume", f"{each}:{each}:ro")
        ]
        base = ("--build-arg", "BASE=localhost/weir-base")
        run(*buildah, "build", "--format", "docker", *base, *lent, "--tag", "weir-mq", ".")
        container = run(*buildah, "from", "weir-mq")
        inspected = json.loads(run(*buildah, "inspect", "--type", "image", "weir-mq"))
        root = Path(run(*buildah, "mount", container))
        yield Image(root, inspected["Docker"]["config"])
    finally:
        run(*buildah, "umount", "--all")
        run(*buildah, "rm", "--all")


SERVE = """
set -e
mount --make-rprivate /
mount --bind {root} {root}
mount -o remount,bind,ro {root}
mount --bind {volume} {root}/var/lib/weir
shift 3  # the role and the data directory are the image's own
exec chroot --userspec={user} {root} env -i {environment} {command} "$@"
"""


def program(image: Image, volume: Path) -> tuple[str, ...]:
    """What `launched` starts in place of `weir`."""
    script = SERVE.format(
        root=image.root,
        volume=volume,
        user=image.config["User"],
        environment=shlex.join([*image.environment, "WEIR_ADMIN_PASSWORD=chosen by a test"]),
        command=shlex.join([*image.config["Entrypoint"], *image.config["Cmd"]]),
    )
    return "unshare", "--mount", "sh", "-c", script, "sh"


def inside(node: Process, image: Image, *command: str) -> subprocess.CompletedProcess[str]:
    """A command in the running image, as its user and with its environment."""
    namespace = ("nsenter", f"--mount=/proc/{node.process.pid}/ns/mnt")
    there = ("chroot", f"--userspec={image.config['User']}", str(image.root))
    return subprocess.run(
        [*namespace, *there, "env", "-i", *image.environment, *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_image_serves_as_its_user_on_a_root_that_cannot_be_written(
    image: Image, tmp_path: Path
) -> None:
    user = int(image.config["User"].partition(":")[0])
    volume = tmp_path / "volume"
    volume.mkdir()
    os.chown(volume, user, user)
    tmp_path.chmod(0o711)
    with launched(volume, program=program(image, volume)) as node:
        node.serves()
        status = Path(f"/proc/{node.process.pid}/status").read_text()
        assert f"Uid:\t{user}\t{user}" in status
        assert {"amqp", "mqtt", "rocketmq", "sqs"} == node.protocols
        refused = inside(node, image, "touch", "/opt/weir/x")
        assert "Read-only file system" in refused.stderr
        check = image.config["Healthcheck"]["Test"]
        assert check[0] == "CMD"
        health = inside(node, image, *check[1:])
        assert health.returncode == 0, health.stderr
        told = getattr(signal, image.config["StopSignal"])
        node.process.send_signal(told)
        assert node.process.wait(30) == 0
        assert "stopped" in {line["event"] for line in node.logged()}


def test_the_image_holds_weir_and_neither_pip_nor_sources(image: Image) -> None:
    assert (image.root / "opt/weir/share/man/man1/weir.1").is_file()
    assert not (image.root / "opt/weir/bin/pip").exists()
    assert not (image.root / "src").exists()
