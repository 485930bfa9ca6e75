"""Groups, given memory and agreements on four real ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from carrier_ranks import NUM_ROUNDS

pytestmark = pytest.mark.multirank


@pytest.fixture(scope="module")
def seen(run_gloo: Callable[..., list[Any]]) -> list[dict[str, Any]]:
    """What each rank saw."""
    return run_gloo("carrier_ranks:main", world_size=4)


def test_subgroups_leave_no_file_open(seen: list[dict[str, Any]]) -> None:
    for rank in seen:
        counts = rank["open files"]
        assert len(counts) == NUM_ROUNDS
        # The first rounds may open what stays for good, and a socket of a peer may close a moment later.
        assert max(counts[-5:]) <= counts[1] + 2


def test_a_consumed_input_is_gone_on_every_rank(seen: list[dict[str, Any]]) -> None:
    expected = {"result": [600 + 4 * element for element in range(8)], "left": 0}
    assert [expected] * 4 == [rank["consumed"] for rank in seen]


def test_owner_root_and_peers_go_by_place_in_the_group(seen: list[dict[str, Any]]) -> None:
    full = [400, 402, 404, 406]
    for rank, shard in ((3, full[:2]), (1, full[2:])):
        expected = {"reduce_scatter": shard, "reduce_broadcast": full, "ring_all_reduce": full}
        assert expected == seen[rank]["base group"]


def test_ranks_that_agree_go_on(seen: list[dict[str, Any]]) -> None:
    assert [""] * 4 == [rank["disagreements"]["none"] for rank in seen]


@pytest.mark.parametrize(
    ("field", "odd"),
    [
        ("op", "product float32 x 64"),
        ("dtype", "sum int32 x 64"),
        ("numel", "sum float32 x 65"),
        ("op and numel", "max float32 x 0"),
    ],
)
def test_every_rank_names_the_differing_field_and_what_each_rank_meant(
    field: str, odd: str, seen: list[dict[str, Any]]
) -> None:
    usual = "sum float32 x 64"
    expected = (
        f"ranks disagree on {field}; got rank 0: {usual}, rank 1: {usual}, rank 2: {odd}, rank 3: {usual}; "
        "expected one operator, dtype and size on all ranks; nothing was sent; find the rank whose call differs"
    )
    assert [expected] * 4 == [rank["disagreements"][field] for rank in seen]


def test_in_a_group_ranks_are_named_globally(seen: list[dict[str, Any]]) -> None:
    for rank in (1, 2):
        text = seen[rank]["disagreements"]["in a group"]
        assert text.startswith("ranks disagree on op; got rank 1: sum float32 x 64, rank 2: product float32 x 64;")
