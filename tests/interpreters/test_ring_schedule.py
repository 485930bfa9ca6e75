from __future__ import annotations

from fractions import Fraction

import pytest

from rsag.collectives import COLLECTIVES, Kind
from rsag.compositions import native, ring
from rsag.errors import UsageError
from rsag.interpreters.ring_schedule import Phase, RingSchedule, ring_schedule
from rsag.programs import Composition, Recorder, View, record_all
from rsag.reduction import ReduceOp

RINGS = (ring.ALL_REDUCE, ring.REDUCE_SCATTER, ring.REDUCE_SCATTER_IN_PLACE, ring.ALL_GATHER, ring.ALL_GATHER_IN_PLACE)
every_ring = pytest.mark.parametrize("composition", RINGS, ids=lambda composition: composition.name)
sizes = pytest.mark.parametrize("world_size", [1, 2, 3, 5, 8])


def schedule_of(composition: Composition, world_size: int, chunk: int = 5) -> RingSchedule:
    programs = record_all(composition, world_size=world_size, numel=chunk * world_size, op=ReduceOp.SUM)
    return ring_schedule(programs)


@every_ring
@sizes
def test_steps_and_bytes_are_those_of_the_collective(composition: Composition, world_size: int) -> None:
    schedule, promise = schedule_of(composition, world_size), COLLECTIVES[composition.target]

    assert (promise.steps(world_size), promise.wire_bytes(1, world_size)) == (
        len(schedule.steps),
        schedule.wire_fraction,
    )


@every_ring
@sizes
def test_the_last_step_leaves_what_the_target_promises(composition: Composition, world_size: int) -> None:
    schedule = schedule_of(composition, world_size)
    everyone = tuple(range(world_size))
    final = [row.holds for row in schedule.steps[-1].ranks] if schedule.steps else schedule.initial

    for rank, holds in enumerate(final):
        if composition.target is Kind.ALL_REDUCE:
            assert dict.fromkeys(everyone, everyone) == holds
        elif composition.target is Kind.ALL_GATHER:
            assert {chunk: (chunk,) for chunk in everyone} == holds
        else:
            assert everyone == holds[rank]


@every_ring
def test_what_one_rank_sends_its_right_neighbour_receives(composition: Composition) -> None:
    for step in schedule_of(composition, 4).steps:
        for row in step.ranks:
            neighbour = step.ranks[row.dest]
            assert (row.rank, row.sends, (row.rank + 1) % 4) == (neighbour.source, neighbour.receives, row.dest)


def test_four_ranks_in_ncclss_order() -> None:
    steps = schedule_of(ring.ALL_REDUCE, 4).steps

    assert [
        (step.step, step.phase, row.sends, row.receives, row.word, row.holds[row.receives])
        for step in steps
        for row in step.ranks[:1]
    ] == [
        (1, Phase.REDUCE_SCATTER, 3, 2, "recv-reduce-send", (0, 3)),
        (2, Phase.REDUCE_SCATTER, 2, 1, "recv-reduce-send", (0, 2, 3)),
        (3, Phase.REDUCE_SCATTER, 1, 0, "recv-reduce-copy-send", (0, 1, 2, 3)),
        (4, Phase.ALL_GATHER, 0, 3, "recv-copy-send", (0, 1, 2, 3)),
        (5, Phase.ALL_GATHER, 3, 2, "recv-copy-send", (0, 1, 2, 3)),
        (6, Phase.ALL_GATHER, 2, 1, "recv", (0, 1, 2, 3)),
    ]


def test_before_the_first_step_a_rank_holds_its_own_contribution_only() -> None:
    assert schedule_of(ring.ALL_REDUCE, 2).initial == ({0: (0,), 1: (0,)}, {0: (1,), 1: (1,)})
    assert schedule_of(ring.ALL_GATHER, 2).initial == ({0: (0,)}, {1: (1,)})


def test_the_opening_word_copies_only_where_the_output_is_apart() -> None:
    assert schedule_of(ring.ALL_GATHER, 3).opening == ("copy-send",) * 3
    assert schedule_of(ring.ALL_GATHER_IN_PLACE, 3).opening == ("send",) * 3


@pytest.mark.parametrize(
    ("composition", "in_place"),
    [(ring.ALL_REDUCE, True), (ring.REDUCE_SCATTER, False), (ring.ALL_GATHER_IN_PLACE, True)],
)
def test_in_place_is_what_the_composition_declares(composition: Composition, in_place: bool) -> None:
    assert in_place is schedule_of(composition, 2).in_place


def test_chunks_are_ranges_of_the_full_payload() -> None:
    assert schedule_of(ring.ALL_GATHER, 3).chunks == ((0, 5), (5, 10), (10, 15))


def test_one_rank_moves_nothing() -> None:
    schedule = schedule_of(ring.ALL_REDUCE, 1)

    assert ((), (), Fraction(0)) == (schedule.steps, schedule.opening, schedule.wire_fraction)


# ------------------------------------------------------------------------------------------------------------ no rings


def half_a_chunk(m: Recorder, full: View, op: str) -> View:
    half = m.allocate(len(full) // m.world // 2)
    m.sendrecv(half, (m.rank - 1) % m.world, full[: len(half)], (m.rank + 1) % m.world)
    return full


def mistaken_source(m: Recorder, full: View, op: str) -> View:
    incoming = m.allocate(len(full) // m.world)
    m.sendrecv(incoming, (m.rank + 1) % m.world, full[: len(incoming)], (m.rank + 1) % m.world)
    return full


def one_leaves_early(m: Recorder, full: View, op: str) -> View:
    if m.rank > 0:
        mistaken_source(m, full, op)
    return full


def only_sends(m: Recorder, full: View, op: str) -> View:
    m.sendrecv(None, None, full, (m.rank + 1) % m.world)
    return full


def forwards_what_is_not_there(m: Recorder, full: View, op: str) -> View:
    incoming, unwritten = (m.allocate(len(full) // m.world) for _ in range(2))
    m.sendrecv(incoming, (m.rank - 1) % m.world, unwritten, (m.rank + 1) % m.world)
    return full


def starts_from_zero(m: Recorder, full: View, op: str) -> View:
    m.fill(full, 0)
    return ring.all_reduce(m, full, op)


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (native.all_reduce, "other collectives"),
        (starts_from_zero, "other work"),
        (half_a_chunk, "other than whole chunks"),
        (mistaken_source, "does not expect"),
        (one_leaves_early, "different numbers of steps"),
        (only_sends, "idle"),
        (forwards_what_is_not_there, "nobody wrote"),
    ],
)
def test_what_is_no_ring_is_refused(run: object, why: str) -> None:
    composition = Composition(name="mistaken", run=run, summary="")  # type: ignore[arg-type]

    with pytest.raises(UsageError, match=why):
        schedule_of(composition, 3, chunk=4)


def test_an_empty_payload_has_no_schedule() -> None:
    with pytest.raises(UsageError, match="without elements"):
        schedule_of(ring.ALL_REDUCE, 2, chunk=0)
