from __future__ import annotations

from itertools import combinations

from auth.password_checks.digests import RIGHT_TTL_MS, WRONG_TTL_MS, DigestMemory

KEY = bytes(32)


def test_what_was_checked_is_recalled_until_its_time_is_over() -> None:
    memory = DigestMemory(KEY)
    right, wrong = (memory.digest("t", "u", "hash", word) for word in (b"yes", b"no"))
    assert memory.recall(right, 0) is None
    memory.remember(right, 0, right=True)
    memory.remember(wrong, 0, right=False)
    assert memory.recall(right, RIGHT_TTL_MS - 1) is True
    assert memory.recall(right, RIGHT_TTL_MS) is None
    assert memory.recall(wrong, WRONG_TTL_MS - 1) is False
    assert memory.recall(wrong, WRONG_TTL_MS) is None


def test_using_a_login_does_not_prolong_its_life() -> None:
    memory = DigestMemory(KEY)
    digest = memory.digest("t", "u", "hash", b"yes")
    memory.remember(digest, 0, right=True)
    for now_ms in range(0, RIGHT_TTL_MS, RIGHT_TTL_MS // 10):
        assert memory.recall(digest, now_ms) is True
    assert memory.recall(digest, RIGHT_TTL_MS) is None


def test_every_part_of_a_login_is_part_of_the_digest() -> None:
    memory = DigestMemory(KEY)
    logins = [
        ("t", "u", "h", b"p"),
        ("t2", "u", "h", b"p"),
        ("t", "u2", "h", b"p"),
        ("t", "u", "h2", b"p"),
        ("t", "u", "h", b"p2"),
        ("tu", "", "h", b"p"),
        ("", "tu", "h", b"p"),
        ("t", "uh", "", b"p"),
        ("t", "u", "", b"hp"),
        ("t", "u", "hp", b""),
    ]
    digests = [memory.digest(*login) for login in logins]
    assert all(one != other for one, other in combinations(digests, 2))


def test_another_process_has_other_digests() -> None:
    one, other = DigestMemory(KEY), DigestMemory(b"\x01" * 32)
    assert one.digest("t", "u", "h", b"p") != other.digest("t", "u", "h", b"p")


def test_the_memory_is_bounded_and_forgets_the_least_recently_used() -> None:
    memory = DigestMemory(KEY, right_max=3)
    digests = [memory.digest("t", "u", "h", b"%d" % number) for number in range(4)]
    for digest in digests[:3]:
        memory.remember(digest, 0, right=True)
    assert memory.recall(digests[0], 1) is True
    memory.remember(digests[3], 1, right=True)
    assert len(memory) == 3
    assert [memory.recall(digest, 2) for digest in digests] == [True, None, True, True]


def test_guesses_never_push_out_logins() -> None:
    memory = DigestMemory(KEY, right_max=3, wrong_max=2)
    login = memory.digest("t", "u", "h", b"right")
    memory.remember(login, 0, right=True)
    for number in range(100):
        memory.remember(memory.digest("t", "u", "h", b"%d" % number), 0, right=False)
    assert memory.recall(login, 1) is True
    assert len(memory) == 3


def test_a_name_that_is_no_unicode_is_a_name_like_any_other() -> None:
    memory = DigestMemory(KEY)
    assert memory.digest("\ud800", "\udfff", "h", b"p") != memory.digest("", "", "h", b"p")
