"""What each lifetime holds by the ledger: steady and peak, in the units of the chapter's table."""

from __future__ import annotations

import pytest

from rsag.compositions import find
from rsag.interpreters.ledger import RankLedger, ledger
from rsag.programs import record_all
from rsag.reduction import ReduceOp
from rsag.units import MIB

ITEMSIZE = 4


def held_by(composition: str, world_size: int, num_bytes: int, rank: int = 0) -> RankLedger:
    programs = record_all(find(composition), world_size=world_size, numel=num_bytes // ITEMSIZE, op=ReduceOp.SUM)
    return ledger(programs, ITEMSIZE).ranks[rank]


def steady_and_peak(composition: str, world_size: int, num_bytes: int) -> tuple[int, int]:
    row = held_by(composition, world_size, num_bytes)
    return row.steady_bytes, row.peak_bytes


@pytest.mark.parametrize(
    ("composition", "of_two", "of_four"),
    [
        ("all_reduce", (256, 256), (256, 256)),
        ("reduce_scatter_only", (128, 384), (64, 320)),
        ("reduce_scatter_in_place", (256, 256), (256, 256)),
        ("reduce_scatter_copied_out", (128, 384), (64, 320)),
        ("rs_ag_naive", (256, 640), (256, 576)),
        ("rs_ag_early_release", (256, 384), (256, 320)),
        ("rs_ag_in_place", (256, 256), (256, 256)),
        ("rs_ag_chunked", (256, 256), (256, 256)),
        ("rs_ag_staged", (256, 320), (256, 320)),
    ],
)
def test_steady_and_peak_mib_of_256(composition: str, of_two: tuple[int, int], of_four: tuple[int, int]) -> None:
    for world_size, expected in ((2, of_two), (4, of_four)):
        steady, peak = steady_and_peak(composition, world_size, 256 * MIB)
        assert tuple(mib * MIB for mib in expected) == (steady, peak)


def test_a_copied_out_shard_and_its_input_are_alive_together_until_the_release() -> None:
    moments = [(moment.what, moment.total_bytes) for moment in held_by("reduce_scatter_copied_out", 4, 256).timeline]
    assert [("allocate input", 256), ("allocate shard", 320), ("release input", 64)] == moments


def test_staging_is_as_large_as_the_largest_chunk() -> None:
    """Five rows of three elements in four chunks: the first has two rows."""
    assert (15 * ITEMSIZE, (15 + 6) * ITEMSIZE) == steady_and_peak("rs_ag_staged", 3, 15 * ITEMSIZE)


def test_padding_is_counted_where_the_input_does_not_divide() -> None:
    assert (8 * ITEMSIZE, (5 + 8) * ITEMSIZE) == steady_and_peak("rs_ag_padded", 4, 5 * ITEMSIZE)


def test_on_one_rank_a_shard_is_the_whole() -> None:
    assert (32, 64) == steady_and_peak("reduce_scatter_only", 1, 32)
    assert (32, 96) == steady_and_peak("rs_ag_naive", 1, 32)


@pytest.mark.parametrize("composition", ["reduce_scatter_only", "rs_ag_naive", "rs_ag_staged", "rs_ag_padded"])
def test_an_empty_payload_holds_nothing(composition: str) -> None:
    assert (0, 0) == steady_and_peak(composition, 4, 0)
