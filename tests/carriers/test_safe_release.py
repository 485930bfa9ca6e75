"""Before the wait a buffer is the backend's: what happens on real ranks when one does not keep to that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from release_ranks import NUM_TRIES

pytestmark = [pytest.mark.multirank, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def seen(run_gloo: Callable[..., list[Any]]) -> list[dict[str, Any]]:
    """What each rank saw."""
    return run_gloo("release_ranks:main", world_size=4)


def test_a_write_before_the_wait_makes_a_wrong_sum(seen: list[dict[str, Any]]) -> None:
    assert max(rank["written before the wait"] for rank in seen) >= 1


def test_the_same_write_after_the_wait_never_does(seen: list[dict[str, Any]]) -> None:
    assert [0] * 4 == [rank["written after the wait"] for rank in seen]


def test_both_carriers_refuse_a_program_that_would_hand_out_a_buffer_in_flight(seen: list[dict[str, Any]]) -> None:
    refusal = "dropped_handle ends with an operation in flight"
    assert [[refusal, refusal]] * 4 == [rank["refused"] for rank in seen]


def test_without_that_check_the_pooled_carrier_hands_out_what_is_not_there_yet(seen: list[dict[str, Any]]) -> None:
    assert 1 <= max(rank["handed out in flight"] for rank in seen) <= NUM_TRIES
