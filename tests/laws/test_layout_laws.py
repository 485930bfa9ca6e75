"""Layouts cut without gaps or overlaps, and their questions agree with each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsag.errors import UsageError
from rsag.layout import ShardLayout, UnevenLayout

layouts = st.builds(ShardLayout, numel=st.integers(0, 200), world_size=st.integers(1, 24))
uneven_layouts = st.builds(UnevenLayout, st.lists(st.integers(0, 9), min_size=1, max_size=12).map(tuple))


def ranges(layout: ShardLayout | UnevenLayout) -> list[range]:
    return [range(*layout.valid_range(rank)) for rank in range(layout.world_size)]


@given(layouts)
def test_valid_ranges_partition_the_elements_in_rank_order(layout: ShardLayout) -> None:
    assert list(range(layout.numel)) == [element for shard in ranges(layout) for element in shard]


@given(layouts)
def test_slots_partition_the_padded_elements_in_rank_order(layout: ShardLayout) -> None:
    slots = [range(*layout.slot(rank)) for rank in range(layout.world_size)]
    assert list(range(layout.padded_numel)) == [element for slot in slots for element in slot]


@given(layouts)
def test_every_slot_has_the_same_size(layout: ShardLayout) -> None:
    sizes = {stop - start for start, stop in map(layout.slot, range(layout.world_size))}
    assert {layout.shard_numel} == sizes


@given(layouts)
def test_the_valid_range_is_the_slot_without_padding(layout: ShardLayout) -> None:
    for rank in range(layout.world_size):
        slot = range(*layout.slot(rank))
        assert [element for element in slot if element < layout.numel] == list(range(*layout.valid_range(rank)))


@given(layouts)
def test_the_owner_is_the_one_whose_valid_range_holds_the_element(layout: ShardLayout) -> None:
    for element in range(layout.numel):
        assert [layout.owner(element)] == [rank for rank, shard in enumerate(ranges(layout)) if element in shard]


@given(layouts)
def test_padded_is_the_least_multiple_of_the_ranks_that_is_enough(layout: ShardLayout) -> None:
    n = layout.world_size
    assert min(multiple for multiple in range(0, layout.numel + n, n) if multiple >= layout.numel) == (
        layout.padded_numel
    )


@given(layouts)
def test_padding_is_less_than_one_element_a_rank(layout: ShardLayout) -> None:
    assert layout.padding in range(layout.world_size)


@given(layouts)
def test_trim_undoes_padding(layout: ShardLayout) -> None:
    logical = list(range(layout.numel))
    assert logical == layout.trim([*logical, *([-1] * layout.padding)])


@given(layouts, st.integers(-3, 3).filter(bool))
def test_trim_refuses_another_length(layout: ShardLayout, difference: int) -> None:
    other = max(0, layout.padded_numel + difference)
    if other != layout.padded_numel:
        with pytest.raises(UsageError, match="another length"):
            layout.trim([0] * other)


@given(layouts)
def test_fewer_elements_than_ranks_leave_the_last_shards_empty(layout: ShardLayout) -> None:
    if layout.numel < layout.world_size:
        empty = [layout.is_empty(rank) for rank in range(layout.world_size)]
        assert [rank >= layout.numel for rank in range(layout.world_size)] == empty


@given(layouts)
def test_unpadded_cuts_as_torch_chunk_does(layout: ShardLayout) -> None:
    """`torch.chunk`: pieces of ceil(M/N), a shorter last one, and no empty ones."""
    left, chunks = layout.numel, []
    while left > 0:
        chunks.append(min(left, -(-layout.numel // layout.world_size)))
        left -= chunks[-1]
    counts = UnevenLayout.unpadded(layout).counts
    assert (*chunks, *([0] * (layout.world_size - len(chunks)))) == counts


@given(layouts)
def test_unpadded_keeps_owners_and_ranges(layout: ShardLayout) -> None:
    uneven = UnevenLayout.unpadded(layout)
    assert [layout.owner(element) for element in range(layout.numel)] == [uneven.owner(e) for e in range(layout.numel)]
    assert [len(shard) for shard in ranges(layout)] == [len(shard) for shard in ranges(uneven)]


@given(uneven_layouts)
def test_uneven_ranges_partition_the_elements_in_rank_order(layout: UnevenLayout) -> None:
    assert list(range(layout.numel)) == [element for shard in ranges(layout) for element in shard]


@given(uneven_layouts)
def test_an_uneven_owner_has_the_element_and_is_not_empty(layout: UnevenLayout) -> None:
    for element in range(layout.numel):
        owner = layout.owner(element)
        assert (element in range(*layout.valid_range(owner)), layout.is_empty(owner)) == (True, False)


@given(st.integers(0, 200), st.integers(1, 24))
def test_balanced_sizes_differ_by_one_at_most_the_larger_first(numel: int, world_size: int) -> None:
    counts = UnevenLayout.balanced(numel, world_size).counts
    assert (numel, world_size, True) == (sum(counts), len(counts), max(counts) - min(counts) <= 1)
    assert sorted(counts, reverse=True) == list(counts)


@pytest.mark.parametrize(("numel", "world_size"), [(1, 0), (-1, 1)])
def test_a_layout_refuses_impossible_sizes(numel: int, world_size: int) -> None:
    with pytest.raises(UsageError, match="a layout"):
        ShardLayout(numel, world_size)


@pytest.mark.parametrize("rank", [-1, 4])
def test_a_layout_refuses_ranks_that_it_does_not_have(rank: int) -> None:
    for layout in (ShardLayout(8, 4), UnevenLayout((2, 2, 2, 2))):
        with pytest.raises(UsageError, match="no such rank"):
            layout.valid_range(rank)


@pytest.mark.parametrize("element", [-1, 7])
def test_padding_has_no_owner(element: int) -> None:
    for layout in (ShardLayout(7, 4), UnevenLayout((4, 0, 3))):
        with pytest.raises(UsageError, match="no such element"):
            layout.owner(element)
