"""Which connection goes when there are too many that nobody knows."""

from __future__ import annotations

import random

import pytest

from kernel.common.crowd import Crowd, address_of


def crowd(*members: str) -> Crowd[str]:
    """Each is `address/number`."""
    made: Crowd[str] = Crowd()
    for each in members:
        made.add(each.partition("/")[0], each)
    return made


def gone(of: Crowd[str], count: int) -> list[str]:
    found = []
    for _ in range(count):
        found.append(of.next_to_go())
        of.discard(found[-1])
    return found


def test_the_address_with_the_most_loses_its_oldest() -> None:
    of = crowd("a/1", "b/1", "b/2", "c/1", "b/3", "a/2")

    assert gone(of, 6) == ["b/1", "a/1", "b/2", "c/1", "a/2", "b/3"]
    assert not len(of)


def test_where_each_has_an_address_of_its_own_the_oldest_goes() -> None:
    of = crowd(*(f"{number}/1" for number in range(100)))

    assert gone(of, 100) == [f"{number}/1" for number in range(100)]


def test_it_agrees_with_counting_anew_each_time() -> None:
    chance = random.Random(3)
    of: Crowd[int] = Crowd()
    naive: list[tuple[str, int]] = []
    for number in range(5_000):
        if naive and chance.random() < 0.45:
            _, member = naive.pop(chance.randrange(len(naive)))
            of.discard(member)
            of.discard(member)  # idempotent
        else:
            address = chance.choice("aaabbcdefgh")
            of.add(address, number)
            naive.append((address, number))
        assert len(of) == len(naive)
        if naive:
            addresses = [address for address, _ in naive]
            most = max(map(addresses.count, set(addresses)))
            oldest = {
                address: min(member for each, member in naive if each == address)
                for address in set(addresses)
                if addresses.count(address) == most
            }
            assert of.next_to_go() in oldest.values()


@pytest.mark.parametrize(
    ("host", "judged_as"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("no address: at all", "no address: at all"),
    ],
)
def test_a_network_of_ipv6_is_one_address(host: str, judged_as: str) -> None:
    assert address_of(host) == judged_as
