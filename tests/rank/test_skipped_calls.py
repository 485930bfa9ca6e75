"""A call that does nothing does not pass for one that did what the call before it had done already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rsag.compositions import COMPOSITIONS

pytestmark = [pytest.mark.multirank, pytest.mark.timeout(150)]

CARRIED = [composition.name for composition in COMPOSITIONS if not composition.symmetric]


@pytest.fixture(scope="module")
def ranks(run_gloo: Callable[..., list[Any]]) -> list[Any]:
    return run_gloo("skipped_calls:main", world_size=2)


def test_every_composition_is_tried(ranks: list[Any]) -> None:
    for found in ranks:
        assert set(CARRIED) == {what.split()[0] for what, _, _ in found["timed"]}
        contracts = {f"composition/{name}/pooled" for name in CARRIED}
        assert (
            contracts == {contract for contract, _ in found["whole"]} == {contract for contract, _ in found["second"]}
        )


def test_timed_calls_are_right_where_none_is_skipped(ranks: list[Any]) -> None:
    assert [] == [what for found in ranks for what, right, _ in found["timed"] if right]


def test_one_call_of_several_that_does_nothing_is_wrong_in_every_composition_on_every_rank(ranks: list[Any]) -> None:
    assert [] == [(rank, what) for rank, found in enumerate(ranks) for what, _, wrong in found["timed"] if not wrong]


def test_a_result_apart_from_the_input_is_wrong_in_every_element(ranks: list[Any]) -> None:
    for found in ranks:
        wrong = {what: count for what, _, count in found["timed"]}
        assert [3600] * 3 == [wrong[f"rs_ag_{name} max bool"] for name in ("naive", "early_release", "padded")]


def test_a_reduce_scatter_that_does_nothing_is_wrong_though_the_all_gather_runs(ranks: list[Any]) -> None:
    """What it left in the shard a cycle ago must not be gathered again."""
    for found in ranks:
        assert [] == [name for name, wrong in found["half"] if not wrong]
        assert 3 == len(found["half"])


def test_a_second_run_that_does_nothing_is_wrong_in_every_composition(ranks: list[Any]) -> None:
    """Its input is another, and what the first left in the result is gone."""
    for found in ranks:
        assert [] == [contract for contract, wrong in found["whole"] if wrong]
        assert [] == [contract for contract, wrong in found["second"] if not wrong]
