"""The machine's claim: where no race is found, every schedule ends, and with the machine's values."""

from __future__ import annotations

import contextlib

import pytest
from any_schedule import AnySchedule, HangError
from hypothesis import event, given, settings
from hypothesis import strategies as st

from rsag.compositions import COMPOSITIONS
from rsag.compositions.mutants import MUTANTS, Mutant
from rsag.errors import ProgramError
from rsag.interpreters import machine
from rsag.interpreters.exact import Exact
from rsag.interpreters.order import AccessLog
from rsag.interpreters.refuted import Refuted
from rsag.interpreters.symbols import Symbols
from rsag.programs import Composition, Recorder, View, record_all
from rsag.programs.program import any_numel
from rsag.records.proof import Contract
from rsag.reduction import ReduceOp

NUMEL, N = 3, 3


def code(rank: int, element: int) -> int:
    return (1000, 10**6, 10**9)[rank] + 37 * element + rank


Step = tuple[str, int, int, bool]
"""(what, buffer, another buffer or distance or root, whether it is started)"""

step = st.tuples(
    st.sampled_from(
        ["barrier"] * 4
        + ["fill", "copy", "peer", "combine", "all_reduce", "scatter", "gather", "broadcast", "sendrecv", "one way"]
        + ["wait", "wait", "pair", "split", "reversed", "renew"]
    ),
    st.integers(0, 2),
    st.integers(0, 2),
    st.booleans(),
)


def random_step(m: Recorder, buffers: list[View], pending: list[int], drawn: Step, op: str) -> None:
    """One step of all ranks alike, but for their rank."""
    what, first, second, start = drawn
    here, there = buffers[first], buffers[second]
    distance = 1 + second % (m.world - 1)
    ahead, behind = (m.rank + distance) % m.world, (m.rank - distance) % m.world
    mine = here[m.rank : m.rank + 1]
    token: int | None = None
    if what == "barrier":
        m.barrier()
    elif what == "fill":
        m.fill(mine, 5)
    elif what == "copy" and first != second:
        token = m.copy(here, there, start=start)
    elif what == "peer":
        token = m.copy(mine, m.peer(there, ahead)[m.rank : m.rank + 1], start=start)
    elif what == "combine":
        token = m.combine(mine, m.peer(here, ahead)[m.rank : m.rank + 1], op=op, start=start)
    elif what == "all_reduce":
        token = m.all_reduce(here, op, start=start)
    elif what == "scatter":
        token = m.reduce_scatter(mine, here, op, start=start)
    elif what == "gather":
        token = m.all_gather(here, mine, start=start)
    elif what == "broadcast":
        token = m.broadcast(here, root=second, start=start)
    elif what == "sendrecv" and first != second:
        token = m.sendrecv(there, behind, here, ahead, start=start)
    elif what == "one way":
        if m.rank == 0:
            m.sendrecv(None, None, here[:1], distance)
        elif m.rank == distance:
            m.sendrecv(here[:1], 0, None, None)
    elif what == "pair" and m.rank != second:
        m.sub([rank for rank in range(m.world) if rank != second]).all_reduce(mine, op)
    elif what == "split" and m.rank != second:
        m.sub([rank for rank in range(m.world) if rank != second]).barrier()
    elif what == "reversed":
        token = m.sub(range(m.world)[::-1]).all_reduce(here, op, start=start)
    elif what == "renew" and first > 0:
        buffers[first] = m.allocate(NUMEL, symmetric=True)
        m.copy(buffers[first], here)
        with contextlib.suppress(ProgramError):  # what this rank itself has in flight cannot be released
            m.release(here)
    elif what == "wait" and pending:
        m.wait(pending.pop(second % len(pending)))
    if token is not None:
        pending.append(token)


def from_steps(steps: list[Step]) -> Composition:
    def run(m: Recorder, full: View, op: str) -> View:
        buffers = [full] + [m.allocate(NUMEL, symmetric=True) for _ in range(2)]
        for buffer in buffers[1:]:
            m.fill(buffer, m.rank)
        pending: list[int] = []
        for drawn in steps:
            random_step(m, buffers, pending, drawn, op)
        for token in pending:
            m.wait(token)
        m.barrier()
        return full

    return Composition(name="random", run=run, summary="", symmetric=True, multiple_of=any_numel)


@settings(max_examples=400)
@given(st.lists(step, min_size=1, max_size=8), st.sampled_from([ReduceOp.SUM, ReduceOp.MAX]), st.integers(0, 2**32))
def test_without_a_race_every_schedule_gives_the_machine_s_values(steps: list[Step], op: ReduceOp, seed: int) -> None:
    programs = record_all(from_steps(steps), world_size=N, numel=NUMEL, op=op)
    try:
        machine.run(programs, Symbols(op), AccessLog(N))
    except Refuted as found:
        event(f"refuted: {found.contract.value}")
        return
    event("accepted")
    outcome = machine.run(programs, Exact(op, code))
    expected = [outcome.read(program.result) for program in programs]
    for more in range(4):
        assert expected == AnySchedule(programs, code, seed + more).run()


@pytest.mark.parametrize("composition", COMPOSITIONS, ids=lambda composition: composition.name)
def test_every_composition_gives_its_values_under_every_schedule(composition: Composition) -> None:
    numel = 2 * N
    programs = record_all(composition, world_size=N, numel=numel, op=ReduceOp.SUM)
    outcome = machine.run(programs, Exact(ReduceOp.SUM, code))
    expected = [outcome.read(program.result) for program in programs]
    for seed in range(10):
        assert expected == AnySchedule(programs, code, seed).run()


# NCCL leaves the overlap with a neighbour's slice undefined; a schedule that reads before it writes gets it right.
RACY = [m for m in MUTANTS if m.breaks is Contract.ORDER and m.name != "output_on_a_neighbours_slice"]


@pytest.mark.parametrize("mutant", RACY, ids=lambda mutant: mutant.name)
def test_some_schedule_shows_the_fault_of_a_racy_mutant(mutant: Mutant) -> None:
    programs = record_all(mutant.composition, world_size=3, numel=3, op=mutant.op)
    expected = [[sum(code(rank, element) for rank in range(3)) for element in range(3)]] * 3
    assert any(expected != AnySchedule(programs, code, seed).run() for seed in range(300))


def test_a_schedule_can_hang() -> None:
    (mutant,) = (mutant for mutant in MUTANTS if mutant.name == "one_rank_skips_the_gather")
    with pytest.raises(HangError):
        AnySchedule(record_all(mutant.composition, world_size=3, numel=3, op=mutant.op), code, seed=0).run()
