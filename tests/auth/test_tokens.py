from __future__ import annotations

import os
from pathlib import Path

import pytest

from auth.errors import AuthCode, AuthError
from auth.private_files.files import create_private
from auth.private_files.tokens import TOKEN_FILE, open_admin_token, read_admin_token


def test_the_token_is_made_once_private_and_kept(tmp_path: Path) -> None:
    token = open_admin_token(tmp_path)
    path = tmp_path / TOKEN_FILE
    assert path.stat().st_mode & 0o777 == 0o600
    assert open_admin_token(tmp_path).text == token.text
    assert read_admin_token(tmp_path).text == token.text
    assert path.read_text() == token.text + "\n"
    assert len(token.text) == 43


def test_only_the_token_itself_matches(tmp_path: Path) -> None:
    token = open_admin_token(tmp_path)
    assert token.matches(token.text.encode())
    for wrong in (b"", token.text[:-1].encode(), token.text.encode() + b"\n", b"\xff" * 43):
        assert not token.matches(wrong)


def test_two_data_directories_have_two_tokens(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert open_admin_token(tmp_path / "a").text != open_admin_token(tmp_path / "b").text


def test_a_token_that_others_may_read_is_refused(tmp_path: Path) -> None:
    open_admin_token(tmp_path)
    (tmp_path / TOKEN_FILE).chmod(0o644)
    for read in (open_admin_token, read_admin_token):
        with pytest.raises(AuthError) as caught:
            read(tmp_path)
        assert caught.value.code is AuthCode.UNSAFE_FILE


@pytest.mark.parametrize("content", [b"", b"short\n", b"x" * 44, b"\xff" * 43])
def test_a_file_without_a_token_is_refused(tmp_path: Path, content: bytes) -> None:
    create_private(tmp_path / TOKEN_FILE, content)
    with pytest.raises(AuthError) as caught:
        open_admin_token(tmp_path)
    assert caught.value.code is AuthCode.DAMAGED


def test_the_command_line_makes_no_token(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_admin_token(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_token_is_not_shown(tmp_path: Path) -> None:
    token = open_admin_token(tmp_path)
    assert token.text not in repr(token)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_root_reads_the_token_of_a_server_that_another_user_runs(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    token = open_admin_token(data)
    path = data / TOKEN_FILE
    os.chown(path, 10_001, 10_001)
    for read in (open_admin_token, read_admin_token):
        with pytest.raises(AuthError, match="belongs to another user") as caught:
            read(data)
        assert caught.value.code is AuthCode.UNSAFE_FILE
    os.chown(data, 10_001, 10_001)
    assert read_admin_token(data).text == token.text
    with pytest.raises(AuthError):
        open_admin_token(data)
    # A link in somebody's directory to a file of somebody else.
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / TOKEN_FILE).symlink_to(path)
    with pytest.raises(AuthError):
        read_admin_token(tmp_path / "other")
