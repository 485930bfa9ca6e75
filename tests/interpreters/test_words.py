from __future__ import annotations

import pytest

from rsag.compositions import COMPOSITIONS, ring
from rsag.interpreters.words import count_words, words
from rsag.programs import Composition, Recorder, View, record, record_all
from rsag.reduction import ReduceOp

RINGS = (ring.ALL_REDUCE, ring.REDUCE_SCATTER, ring.REDUCE_SCATTER_IN_PLACE, ring.ALL_GATHER, ring.ALL_GATHER_IN_PLACE)


def expected(composition: Composition, world_size: int) -> dict[str, int]:
    """Read off NCCL's src/device/all_reduce.h, reduce_scatter.h and all_gather.h."""
    if world_size == 1:
        return {}
    between = world_size - 2
    counts = {
        "ring_all_reduce": {
            "send": 1,
            "recv-reduce-send": between,
            "recv-reduce-copy-send": 1,
            "recv-copy-send": between,
            "recv": 1,
        },
        "ring_reduce_scatter": {"send": 1, "recv-reduce-send": between, "recv-reduce-copy": 1},
        "ring_reduce_scatter_in_place": {"send": 1, "recv-reduce-send": between, "recv-reduce-copy": 1},
        "ring_all_gather": {"copy-send": 1, "recv-copy-send": between, "recv": 1},
        "ring_all_gather_in_place": {"send": 1, "recv-copy-send": between, "recv": 1},
    }[composition.name]
    return {name: count for name, count in counts.items() if count}


@pytest.mark.parametrize("world_size", range(1, 9))
@pytest.mark.parametrize("composition", RINGS, ids=lambda composition: composition.name)
def test_every_rank_says_what_nccl_says(composition: Composition, world_size: int) -> None:
    programs = record_all(composition, world_size=world_size, numel=3 * world_size, op=ReduceOp.SUM)

    assert [expected(composition, world_size)] * world_size == [count_words(program) for program in programs]


@pytest.mark.parametrize("op", [ReduceOp.MAX, ReduceOp.PRODUCT])
def test_the_operator_changes_no_word(op: ReduceOp) -> None:
    program = record(ring.ALL_REDUCE, rank=1, world_size=4, numel=8, op=op)

    assert expected(ring.ALL_REDUCE, 4) == count_words(program)


def test_a_word_goes_from_what_arrives_to_what_the_next_step_sends() -> None:
    program = record(ring.ALL_REDUCE, rank=0, world_size=3, numel=3, op=ReduceOp.SUM)
    full = program.input

    said = [(word.name, word.step, word.sent) for word in words(program)]

    assert [
        ("send", 0, full[2:3]),
        ("recv-reduce-send", 0, full[1:2]),
        ("recv-reduce-copy-send", 1, full[0:1]),
        ("recv-copy-send", 2, full[2:3]),
        ("recv", 3, None),
    ] == said


def test_the_name_of_the_composition_plays_no_part() -> None:
    renamed = Composition(name="ring_all_gather", run=ring.ALL_REDUCE.run, summary="")

    assert expected(ring.ALL_REDUCE, 5) == count_words(record(renamed, rank=2, world_size=5, numel=5, op=ReduceOp.SUM))


def shift_own(m: Recorder, full: View, op: str) -> View:
    """Two sends of the own contribution, and neither arrival is forwarded."""
    first, second = (m.allocate(len(full)) for _ in range(2))
    left, right = (m.rank - 1) % m.world, (m.rank + 1) % m.world
    m.sendrecv(first, left, full, right)
    m.sendrecv(second, left, full, right)
    m.combine(full, second, op=op)
    return full


def test_what_did_not_just_arrive_is_sent_by_a_word_of_its_own() -> None:
    shift = Composition(name="shift", run=shift_own, summary="")
    program = record(shift, rank=0, world_size=2, numel=2, op=ReduceOp.SUM)

    assert [word.name for word in words(program)] == ["send", "recv", "send", "recv-reduce-copy"]


def overwritten_at_the_end(m: Recorder, full: View, op: str) -> View:
    kept = m.allocate(len(full))
    m.copy(kept, full)
    m.sendrecv(full, (m.rank - 1) % m.world, kept, (m.rank + 1) % m.world)
    m.combine(full, kept, op=op)
    m.sendrecv(full, (m.rank - 1) % m.world, kept, (m.rank + 1) % m.world)
    return full


def test_what_is_overwritten_later_was_not_copied() -> None:
    composition = Composition(name="overwritten", run=overwritten_at_the_end, summary="")
    program = record(composition, rank=0, world_size=2, numel=2, op=ReduceOp.SUM)

    assert words(program)[1].name == "recv-reduce"


def test_nothing_is_said_where_no_element_moves() -> None:
    assert count_words(record(ring.ALL_REDUCE, rank=0, world_size=4, numel=0, op=ReduceOp.SUM)) == {}


@pytest.mark.parametrize(
    "composition", [c for c in COMPOSITIONS if not c.name.startswith("ring_")], ids=lambda composition: composition.name
)
def test_compositions_of_collectives_say_nothing(composition: Composition) -> None:
    assert words(record(composition, rank=1, world_size=2, numel=4, op=ReduceOp.SUM)) == ()
