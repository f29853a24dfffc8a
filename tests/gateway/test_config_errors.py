"""What is said about settings that cannot be used: where, what, and who set it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gateway.config.loading import ConfigError, load
from gateway.config.source import CHANGES_MAX, DEPTH_MAX, FILE_SIZE_BYTES_MAX

if TYPE_CHECKING:
    from pathlib import Path


def refused(
    *assignments: str, environ: dict[str, str] | None = None, file: Path | None = None
) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(file, assignments, environ or {})
    return [str(problem) for problem in caught.value.problems]


def written(folder: Path, text: str) -> Path:
    file = folder / "weir.yaml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("amqp.prot", "amqp.port"),
        ("ampq.port", "amqp.port"),
        ("nod.data", "node.data"),
        ("node.dta", "node.data"),
        ("amqp.limits.frame_mx", "amqp.limits.frame_max"),
        ("amqp.listeners.tpc.port", "amqp.listeners.tcp.port"),
        ("amqp.listeners.tcp.hots", "amqp.listeners.tcp.host"),
        ("protocols.mqt.enabled", "mqtt.enabled"),
    ],
)
def test_an_unknown_key_comes_with_the_one_that_was_meant(path: str, meant: str) -> None:
    (problem,) = refused(f"{path}=1")
    assert "is not a setting" in problem
    assert f"did you mean {meant}?" in problem
    assert problem.endswith(f"(--set {path})")


def test_an_unknown_key_near_nothing_comes_with_the_known_ones() -> None:
    (problem,) = refused("node.zzzzzz=1")
    assert (
        "known here: admin, cluster, data, insecure, io_uring, key_file, management, memory, mesh, "
        "metering, metrics, role, …" in problem
    )


def test_an_unknown_key_in_a_variable_and_in_a_file_names_its_place(tmp_path: Path) -> None:
    assert refused(environ={"WEIR_AMQP__PROT": "1"}) == [
        "amqp.prot: is not a setting; did you mean amqp.port? (WEIR_AMQP__PROT)"
    ]
    file = written(tmp_path, "# mine\namqp:\n  prot: 1\n")
    assert refused(file=file) == [
        f"amqp.prot: is not a setting; did you mean amqp.port? ({file}:3)"
    ]


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("amqp.port=fast", "amqp.listeners.tcp.port: 'fast' does not fit: expected int, got str"),
        ("amqp.port=65536", "'65536' does not fit: expected int <= 65535"),
        ("amqp.port=-1", "'-1' does not fit: expected int >= 0"),
        ("amqp.enabled=perhaps", "amqp.enabled: 'perhaps' does not fit: expected bool"),
        ("node.role=leader", "node.role: 'leader' does not fit: "),
        ("amqp.host=", "amqp.listeners.tcp.host: '' does not fit: expected str of length >= 1"),
        ("node.workers=0", "node.workers: '0' does not fit: expected int >= 1"),
    ],
)
def test_a_value_that_does_not_fit_is_told_with_path_value_and_expectation(
    assignment: str, said: str
) -> None:
    (problem,) = refused(assignment)
    assert said in problem


def test_a_file_is_held_to_the_types_it_writes(tmp_path: Path) -> None:
    file = written(tmp_path, 'amqp:\n  port: "5672"\n  enabled: 1\n')
    assert refused(file=file) == [
        f"amqp.listeners.tcp.port: '5672' does not fit: expected int, got str ({file}:2)",
        f"amqp.enabled: 1 does not fit: expected bool, got int ({file}:3)",
    ]


def test_all_problems_are_told_at_once() -> None:
    assert len(refused("amqp.prot=1", "amqp.port=x", "nod.data=y")) == 3


def test_a_section_takes_no_value_and_a_value_has_no_keys() -> None:
    (problem,) = refused("amqp=1")
    assert problem.startswith("amqp: is a section, not a value; it has adapter, auth, enabled")
    (problem,) = refused("node.data.deeper=1")
    assert problem.startswith("node.data: is a value and has no key 'deeper'")


def test_null_does_not_empty_a_section(tmp_path: Path) -> None:
    (problem,) = refused(file=written(tmp_path, "amqp:\n  listeners: null\n"))
    assert problem.startswith("amqp.listeners: is a section")


@pytest.mark.parametrize(
    "path",
    ["amqp.versions", "amqp.limits.frame_max.unit", "amqp.limits.frame_max.max"],
)
def test_what_the_program_does_cannot_be_set(path: str) -> None:
    (problem,) = refused(f"{path}=1")
    assert "says what this version does and cannot be set" in problem


def test_operations_cannot_be_set_even_by_a_file(tmp_path: Path) -> None:
    text = "amqp:\n  operations:\n    queue.declare: {status: full, test: nowhere}\n"
    assert all("cannot be set" in problem for problem in refused(file=written(tmp_path, text)))


def test_a_file_cannot_add_a_limit_that_no_code_reads(tmp_path: Path) -> None:
    text = "amqp:\n  limits:\n    patience: {value: 1, unit: s, reason: none}\n"
    (problem,) = {line.partition(":")[0] for line in refused(file=written(tmp_path, text))}
    assert problem == "amqp.limits.patience"


def test_a_variable_or_flag_adds_no_names() -> None:
    (problem,) = refused("amqp.listeners.inside.port=1")
    assert "amqp.listeners.inside: is not a setting; known here: tcp, tls" in problem


def test_a_new_protocol_without_an_adapter_is_a_slip_of_the_pen(tmp_path: Path) -> None:
    (problem,) = refused(file=written(tmp_path, "ampq:\n  enabled: true\n"))
    assert "ampq: is not a setting; did you mean amqp.enabled?" in problem


def test_an_added_entry_must_be_complete(tmp_path: Path) -> None:
    file = written(tmp_path, "amqp:\n  listeners:\n    inside: {host: 127.0.0.1}\n")
    (problem,) = refused(file=file)
    what = "amqp.listeners.inside.port: is missing; amqp.listeners.inside needs it"
    assert problem == f"{what} ({file}:3)"


def test_a_limit_stays_within_what_the_wire_allows() -> None:
    (problem,) = refused("amqp.limits.frame_max=100")
    assert "amqp.limits.frame_max: 100 is below the least possible, 4096 bytes" in problem
    (problem,) = refused("amqp.limits.channel_max=65536")
    assert "65536 is above the most possible, 65535 channels" in problem


def test_two_listeners_cannot_have_one_address(tmp_path: Path) -> None:
    file = written(tmp_path, "amqp:\n  listeners:\n    two: {host: 127.0.0.1, port: 5672}\n")
    (problem,) = refused(file=file)
    assert "127.0.0.1:5672 is the address of amqp.listeners.tcp too" in problem


def test_an_enabled_protocol_needs_a_listener() -> None:
    (problem,) = refused("amqp.listeners.tcp.enabled=false", "amqp.listeners.tls.enabled=false")
    assert "none is enabled, so no one could reach amqp" in problem


@pytest.mark.parametrize(
    "assignment",
    [
        "node.workers=2",
        "node.store.enabled=false",
        "node.store.tls=true",
        "names.tree.sqs=true",
        "amqp.auth.methods=EXTERNAL",
    ],
)
def test_what_is_not_served_yet_is_refused_and_never_ignored(assignment: str) -> None:
    problems = refused("node.role=store", "node.cluster.number=1", assignment)
    assert all("yet" in problem for problem in problems)


def test_a_tls_listener_that_others_reach_needs_a_certificate() -> None:
    (problem,) = refused("amqp.listeners.tls.host=0.0.0.0")
    assert "set node.tls.certificate and node.tls.private_key" in problem
    (problem,) = refused("node.tls.certificate=chain.pem")
    assert "node.tls.private_key: is needed" in problem


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("amqp: {port: 1, port: 2}\n", "amqp.port is given twice"),
        ("amqp: [1, 2\n", "is not YAML"),
        ("- a\n- b\n", "does not hold settings"),
        ("tenants: {default: {known_as: {1: x}}}\n", "the key 1 is not text: quote it"),
        ("{a: b}: c\n", "the key a list or mapping is not text"),
        ("node: {data: !!python/object:os.system x}\n", "a value cannot be read"),
        ("node: {data: !!int x}\n", "a value cannot be read"),
        ("node: &loop {data: *loop}\n", "deeper than"),
    ],
)
def test_a_file_that_is_not_strict_yaml_is_refused(text: str, said: str, tmp_path: Path) -> None:
    (problem,) = refused(file=written(tmp_path, text))
    assert said in problem


def test_a_file_is_bounded_in_size_depth_and_values(tmp_path: Path) -> None:
    (problem,) = refused(file=written(tmp_path, "#" * (FILE_SIZE_BYTES_MAX + 1)))
    assert "is longer than" in problem
    deep = "".join(f"{' ' * depth}a:\n" for depth in range(DEPTH_MAX + 1)) + " " * 99 + "b: 1\n"
    (problem,) = refused(file=written(tmp_path, deep))
    assert "deeper than" in problem
    entries = ", ".join(f"k{i}: 1" for i in range(CHANGES_MAX + 1))
    (problem,) = refused(file=written(tmp_path, f"names: {{aliases: {{{entries}}}}}\n"))
    assert "more than" in problem


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    (problem,) = refused(file=tmp_path / "absent.yaml")
    assert "cannot be read: No such file or directory" in problem
    (problem,) = refused(file=tmp_path)
    assert "cannot be read" in problem
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"a: \xff\xfe")
    (problem,) = refused(file=binary)
    assert "is not UTF-8" in problem


def test_a_flag_without_a_value_is_told_apart_from_an_unknown_key() -> None:
    assert refused("amqp.port") == ["--set: 'amqp.port' is not path=value (--set)"]
    assert refused("=1") == ["--set: '=1' is not path=value (--set)"]
