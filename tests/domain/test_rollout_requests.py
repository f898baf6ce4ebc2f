"""Requests about rollouts that may come twice: which is the same, and how much of them is remembered."""

from __future__ import annotations

import pytest

from gradwire.server.domain.rollouts.following import Requests, Wanted, content_of_collect, content_of_open
from gradwire.server.domain.rollouts.rollout import Spec
from gradwire.server.errors import AlreadyExists


def test_the_order_of_labels_and_groups_makes_no_other_request() -> None:
    one, other = Spec("task", labels={"a": "1", "b": "2"}), Spec("task", labels={"b": "2", "a": "1"})
    assert content_of_open(1, [one]) == content_of_open(1, [other])
    assert content_of_open(1, [one]) != content_of_open(2, [one])
    assert content_of_open(1, [one]) != content_of_open(1, [Spec("task", labels={"a": "2", "b": "1"})])
    names = [f"group-{number}" for number in range(50)]
    assert content_of_collect(Wanted(groups=frozenset(names))) == content_of_collect(
        Wanted(groups=frozenset(reversed(names)))
    )
    assert content_of_collect(Wanted(groups=frozenset(names))) != content_of_collect(Wanted())


def test_large_answers_are_remembered_for_a_shorter_time() -> None:
    requests = Requests()
    ids = [f"ro-{number}" for number in range(4096)]
    for number in range(20):
        requests.keep(f"large-{number}", b"content", ids)
    assert requests.find("large-3", b"content") is None
    assert requests.find("large-4", b"content") == tuple(ids)
    requests.keep("larger than all", b"content", ids * 20)
    assert requests.find("large-19", b"content") is None
    assert requests.find("larger than all", b"content") == tuple(ids * 20)
    requests.keep("small", b"content", ["ro-1"])  # and so the large one gives way
    assert requests.find("larger than all", b"content") is None
    with pytest.raises(AlreadyExists):
        requests.find("small", b"other")
    for number in range(5000):
        requests.keep(f"small-{number}", b"content", ["ro-1"])
    assert requests.find("small", b"content") is None
    assert requests.find("small-4999", b"content") == ("ro-1",)
