"""Worlds proved and refuted: the real compositions, the planted faults, faults of the prover itself, and a law."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsag.collectives import COLLECTIVES, Kind
from rsag.compositions import COMPOSITIONS, mutants
from rsag.compositions.mutants import MUTANTS, Mutant
from rsag.errors import ProgramError
from rsag.interpreters import machine
from rsag.interpreters.exact import Exact, Number, fold
from rsag.interpreters.order import AccessLog
from rsag.interpreters.refuted import Refuted
from rsag.programs import IDENTITY, Composition, Program, Recorder, View, record_all
from rsag.programs.program import any_numel
from rsag.proofs import world
from rsag.proofs.world import Prover, WorldProof
from rsag.records.proof import Contract, Refutation
from rsag.reduction import ReduceOp

PROVERS = {op: Prover(op) for op in ReduceOp}
BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


def numels(world_size: int) -> list[int]:
    n = world_size
    return sorted({0, 1, n - 1, n, n + 1, 2 * n + 1, 3 * n, 8 * n})


def prove(run: Callable[[Recorder, View, str], View], numel: int = 6, n: int = 3, **flags: object) -> WorldProof:
    composition = Composition(name="tried", run=run, summary="", multiple_of=any_numel, **flags)  # type: ignore[arg-type]
    return PROVERS[ReduceOp.SUM].prove(composition, n, numel)


# --------------------------------------------------------------------------------------------------- what is right


@pytest.mark.parametrize("world_size", range(1, 6))
@pytest.mark.parametrize("composition", COMPOSITIONS, ids=lambda composition: composition.name)
def test_every_composition_is_proved_in_every_world_that_it_claims(composition: Composition, world_size: int) -> None:
    refuted: list[Refutation] = []
    claimed = 0
    for op in ReduceOp:
        for numel in numels(world_size):
            if composition.why_refused(numel, world_size, op) is None:
                proof = PROVERS[op].prove(composition, world_size, numel)
                refuted += [found for found in (proof.result, proof.shard) if found is not None]
                claimed += 1
    assert [] == refuted
    assert claimed > 0


@pytest.mark.parametrize(
    ("name", "has_shards"),
    [("rs_ag_in_place", True), ("rs_ag_chunked", True), ("two_level", False), ("ring_all_reduce", False)],
)
def test_shards_are_a_state_where_a_reduce_scatter_is_over_all_ranks(name: str, has_shards: bool) -> None:
    (composition,) = (composition for composition in COMPOSITIONS if composition.name == name)
    assert has_shards == PROVERS[ReduceOp.SUM].prove(composition, 4, 8).has_shards


@pytest.mark.parametrize("world_size", [3, 4, 5])
@pytest.mark.parametrize("name", [mutant.name for mutant in MUTANTS if mutant.breaks is None])
def test_what_only_looks_wrong_is_proved(name: str, world_size: int) -> None:
    mutant = BY_NAME[name]
    proof = PROVERS[mutant.op].prove(mutant.composition, world_size, mutant.numel(world_size))
    assert (None, None) == (proof.result, proof.shard)


# --------------------------------------------------------------------------------------------------- what is wrong


def refutation_of(mutant: Mutant, world_size: int) -> Refutation:
    proof = Prover(mutant.op).prove(mutant.composition, world_size, mutant.numel(world_size))
    found = proof.result or proof.shard
    assert found is not None, f"{mutant.name} survives"
    return found


@pytest.mark.parametrize("world_size", [3, 4, 5])
@pytest.mark.parametrize("name", [mutant.name for mutant in MUTANTS if mutant.breaks is not None])
def test_every_mutant_is_refuted_against_the_contract_that_it_breaks(name: str, world_size: int) -> None:
    mutant = BY_NAME[name]
    found = refutation_of(mutant, world_size)
    scope = mutant.breaks, world_size, mutant.numel(world_size), mutant.op
    assert scope == (found.contract, found.world_size, found.numel, found.op)


def lines_of_mutants(sites: tuple[str, ...]) -> Iterator[str]:
    """The source lines among `sites` that are the mutants' own."""
    for site in sites:
        path, _, line = site.rpartition(":")
        if Path(path).parent == Path("mutants"):
            yield (Path(mutants.__file__).parent / Path(path).name).read_text().splitlines()[int(line) - 1]


REFUTED_WITH_LINES = [
    mutant.name
    for mutant in MUTANTS
    if mutant.breaks not in (None, Contract.PROGRAM)
    and mutant.name not in ("dropped_tail", "stale_output", "never_waited")
]


@pytest.mark.parametrize("name", REFUTED_WITH_LINES)
def test_a_refutation_names_lines_of_the_mutant(name: str) -> None:
    lines = list(lines_of_mutants(refutation_of(BY_NAME[name], 4).sites))
    assert lines
    assert all(" m." in line for line in lines)


@pytest.mark.parametrize("name", ["dropped_tail", "stale_output"])
def test_an_element_that_nobody_wrote_is_the_caller_s(name: str) -> None:
    assert ("caller",) == refutation_of(BY_NAME[name], 4).sites


RACES = [
    "write_in_flight",
    "read_before_the_wait",
    "staging_reused_early",
    "peer_without_the_first_barrier",
    "peer_without_the_middle_barrier",
    "peer_reads_a_collectives_output",
]


@pytest.mark.parametrize("name", RACES)
def test_a_race_names_two_accesses(name: str) -> None:
    found = refutation_of(BY_NAME[name], 4)
    assert ("race on elements", 2) == (found.message[:16], len(found.sites))


@pytest.mark.parametrize("name", ["peer_without_the_last_barrier", "staging_shared_without_the_last_barrier"])
def test_a_missing_last_barrier_is_a_race_with_the_caller(name: str) -> None:
    found = refutation_of(BY_NAME[name], 4)
    assert (1, 1) == (len(list(lines_of_mutants(found.sites))), found.sites.count("caller"))


def test_zero_padding_under_max_leaves_the_result_right_and_a_shard_wrong() -> None:
    mutant = BY_NAME["zero_padding_under_max"]
    proof = PROVERS[ReduceOp.MAX].prove(mutant.composition, 4, 17)
    assert (None, True) == (proof.result, proof.has_shards)
    assert proof.shard is not None
    # q = 5: rank 3 holds 15..19, of which 17, 18 and 19 are padding
    assert (Contract.SHARD, 3, 2, ("constant 0",)) == (
        proof.shard.contract,
        proof.shard.rank,
        proof.shard.element,
        proof.shard.extra,
    )


def test_a_dropped_tail_misses_everyone_else() -> None:
    found = refutation_of(BY_NAME["dropped_tail"], 4)
    assert (0, 16, ("x[1][16]", "x[2][16]", "x[3][16]"), ()) == (found.rank, found.element, found.missing, found.extra)


def test_unequal_averages_are_refuted_by_their_weights() -> None:
    found = refutation_of(BY_NAME["avg_of_unequal_groups"], 4)
    # a third of a half instead of a quarter for three of them, a half for the fourth
    assert (("1/12 x[0][0]", "1/12 x[1][0]", "1/12 x[2][0]"), ("1/4 x[3][0]",)) == (found.missing, found.extra)


# --------------------------------------------------------------------------- more that is wrong, in ways once missed


def whole(m: Recorder, full: View, op: str) -> View:
    m.all_reduce(full, op)
    return full


def test_a_result_in_a_peer_s_memory() -> None:
    found = prove(lambda m, full, op: m.peer(whole(m, full, op), 0), symmetric=True).result
    assert found is not None
    assert Contract.PROGRAM is found.contract


def test_a_result_in_released_memory() -> None:
    def run(m: Recorder, full: View, op: str) -> View:
        m.all_reduce(full, op)
        m.release(full)
        return full

    found = prove(run, consumes=True).result
    assert found is not None
    assert ("released",) == found.extra


def test_a_borrowed_input_that_is_changed_while_the_result_is_elsewhere() -> None:
    def run(m: Recorder, full: View, op: str) -> View:
        result = m.allocate(len(full))
        m.all_reduce(full, op)
        m.copy(result, full)
        return result

    assert prove(run, consumes=True).result is None
    found = prove(run).result
    assert found is not None
    assert (Contract.RESULT, 0, 0) == (found.contract, found.rank, found.element)
    assert "an input that the caller keeps" in found.message


def test_a_result_in_an_input_that_the_caller_keeps() -> None:
    assert [None, None] == [prove(whole, in_place=True).result, prove(whole, consumes=True).result]
    found = prove(whole).result
    assert found is not None
    assert (Contract.PROGRAM, 0) == (found.contract, found.rank)
    assert "rank 0's result lies in an input that the caller keeps" in found.message


# All but the all_gathers, whose input would be another buffer.
IN_PLACE = [c for c in COMPOSITIONS if c.in_place and c.target is not Kind.ALL_GATHER]


@pytest.mark.parametrize("composition", IN_PLACE, ids=lambda composition: composition.name)
def test_what_works_in_place_says_so(composition: Composition) -> None:
    found = PROVERS[ReduceOp.SUM].prove(replace(composition, in_place=False), 4, 8).result
    assert found is not None
    assert Contract.PROGRAM is found.contract


def test_a_result_of_another_length() -> None:
    found = prove(lambda m, full, op: whole(m, full, op)[1:]).result
    assert found is not None
    assert "rank 0 returns 5 elements instead of 6" == found.message


def test_a_shard_that_no_rank_holds() -> None:
    """The result is right by other means; between the halves two elements of six are reduced nowhere."""

    def run(m: Recorder, full: View, op: str) -> View:
        mine = m.allocate(1)
        m.reduce_scatter(mine, full[:3], op)
        return whole(m, full, op)

    proof = prove(run, in_place=True)
    assert proof.shard is not None
    assert (None, "no shard holds element 3") == (proof.result, proof.shard.message)


# ---------------------------------------------------------------------------------- does the prover need its parts

ORDER_MUTANTS = [mutant for mutant in MUTANTS if mutant.breaks is Contract.ORDER]
NEED_THE_LOG = {
    "write_in_flight",
    "peer_without_the_first_barrier",
    "peer_without_the_last_barrier",
    "peer_reads_a_collectives_output",
    "staging_shared_without_the_last_barrier",
}
"""The others are refuted by what they read, or by a rule of their own, in the one schedule that is run."""


def survivors() -> set[str]:
    """The mutants of order that are proved."""
    proofs = {m.name: Prover(m.op).prove(m.composition, 4, m.numel(4)) for m in ORDER_MUTANTS}
    return {name for name, proof in proofs.items() if proof.result is None}


def test_without_a_log_racy_mutants_survive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "needs_order", lambda programs: False)
    assert NEED_THE_LOG == survivors()


def test_without_the_check_of_the_log_the_same_mutants_survive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AccessLog, "check", lambda self: None)
    assert NEED_THE_LOG == survivors()


def test_if_everything_were_heard_of_everybody_a_broadcast_would_order_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(m: Recorder, full: View, op: str) -> View:
        m.all_reduce(full, op)
        note = m.allocate(1)
        m.fill(note, 0)
        m.broadcast(note, root=1)
        if m.rank == 1:
            m.copy(full, m.peer(full, 0))
        m.barrier()
        return full

    assert prove(run, n=2, symmetric=True, in_place=True).result is not None
    monkeypatch.setattr(machine, "hears", lambda rank, step: step.group)
    assert prove(run, n=2, symmetric=True, in_place=True).result is None


def test_without_the_own_slice_rule_a_strange_overlap_survives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "refuse_overlap", lambda rank, step: None)
    found = Prover(ReduceOp.SUM).prove(BY_NAME["output_on_a_neighbours_slice"].composition, 4, 16).result
    assert found is None or found.contract is Contract.RESULT


# ------------------------------------------------------------------------------------------------------------ the law


def exact_results(
    composition: Composition, n: int, numel: int, op: ReduceOp, inputs: Callable[[int, int], Number]
) -> tuple[list[list[Number]], list[list[Number]]]:
    """What the ranks return, and what the target promises them, in exact numbers."""
    recorded: tuple[Program, ...] = record_all(composition, world_size=n, numel=numel, op=op)
    outcome = machine.run(recorded, Exact(op, inputs))
    promise = COLLECTIVES[composition.target]
    count = promise.count(numel, n)
    wanted: list[list[Number]] = []
    for rank in range(n):
        wanted.append([])
        for element in range(promise.recv_numel(count, n)):
            sources = promise.postcondition(rank, element, count=count, world_size=n)
            assert sources is not None
            values = [inputs(*source) for source in sources]
            wanted[-1].append(fold(op, values) if promise.reduces else values[0])
    return [outcome.read(program.result) for program in recorded], wanted


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Composition, int, int, ReduceOp]:
    composition = draw(st.sampled_from(COMPOSITIONS))
    n = draw(st.integers(1, 6))
    op = draw(st.sampled_from([op for op in ReduceOp if not (composition.folds and op is ReduceOp.AVG)]))
    multiple = composition.multiple_of(n)
    return composition, n, multiple * draw(st.integers(0, 12 // multiple + 2)), op


@given(worlds(), st.randoms(use_true_random=False))
def test_what_is_proved_is_right_in_exact_numbers(case: tuple[Composition, int, int, ReduceOp], random) -> None:  # type: ignore[no-untyped-def]
    composition, n, numel, op = case
    proof = PROVERS[op].prove(composition, n, numel)
    assert proof.result is None
    values = {(rank, element): random.randint(-99, 99) for rank in range(n) for element in range(numel)}
    got, wanted = exact_results(composition, n, numel, op, lambda rank, element: values[rank, element])
    assert wanted == got


VALUE_MUTANTS = [mutant for mutant in MUTANTS if mutant.breaks is Contract.RESULT]


def generic(rank: int, element: int) -> int:
    """No two inputs alike, nor any two sums of a few of them."""
    return (1 << (5 * rank)) * (1009 + 2 * element) + 7 * element * element + 13


@given(st.sampled_from(VALUE_MUTANTS), st.integers(3, 6))
def test_a_value_refuted_by_symbols_is_wrong_in_generic_numbers(mutant: Mutant, n: int) -> None:
    numel = mutant.numel(n)
    found = PROVERS[mutant.op].prove(mutant.composition, n, numel).result
    assert found is not None
    assert found.rank is not None
    got, wanted = exact_results(mutant.composition, n, numel, mutant.op, generic)
    element = slice(None) if found.element is None else found.element  # a read of undefined memory names its rank only
    assert wanted[found.rank][element] != got[found.rank][element]


Step = tuple[str, int, int, int]
"""(what, root or shift, first third, thirds)"""

WHAT = ("all_reduce", "reduce", "broadcast", "reduce_broadcast", "scatter_gather", "shift", "fill", "fold")
WHERE = ((0, 3), (0, 3), (0, 3), (0, 1), (1, 2), (0, 2), (2, 1))

steps = st.builds(
    lambda what, root, where: (what, root, *where),
    st.sampled_from(WHAT),
    st.integers(0, 2),
    st.sampled_from(WHERE),
)


def random_step(m: Recorder, part: View, staging: View, op: str, what: str, root: int) -> None:
    """One blocking step that all ranks take on `part`."""
    if what == "all_reduce":
        m.all_reduce(part, op)
    elif what in ("reduce", "broadcast", "reduce_broadcast"):
        if what != "broadcast":
            m.reduce(part, op, root=root)
        if what != "reduce":
            m.broadcast(part, root=root)
    elif what == "scatter_gather":
        mine = staging[: len(part) // m.world]
        m.reduce_scatter(mine, part, op)
        m.all_gather(part, mine)
    elif what == "fill":
        m.fill(part, IDENTITY)
    else:
        distance = 1 + root
        got = staging[: len(part)]
        m.sendrecv(got, (m.rank - distance) % m.world, part, (m.rank + distance) % m.world)
        if what == "shift":
            m.copy(part, got)
        else:
            m.combine(part, got, op=op)


def from_steps(program: list[Step]) -> Composition:
    """A composition of random steps on its input: mostly wrong, at times right."""

    def run(m: Recorder, full: View, op: str) -> View:
        third = len(full) // 3
        staging = m.allocate(len(full))
        for what, root, first, size in program:
            random_step(m, full[first * third : (first + size) * third], staging, op, what, root)
        return full

    return Composition(name="random", run=run, summary="", in_place=True, multiple_of=any_numel)


@given(
    st.lists(steps, min_size=1, max_size=4),
    st.sampled_from([op for op in ReduceOp if op is not ReduceOp.AVG]),
    st.randoms(use_true_random=False),
)
def test_random_compositions_get_one_verdict_from_symbols_and_numbers(program, op: ReduceOp, random) -> None:  # type: ignore[no-untyped-def]
    """Proved is right for every input; a wrong element is wrong for some, and a few random inputs find one."""
    composition, n, numel = from_steps(program), 3, 9
    found = PROVERS[op].prove(composition, n, numel).result
    right = True
    for _ in range(12):
        bits = {(rank, element): random.getrandbits(30) + 2 for rank in range(n) for element in range(numel)}
        got, wanted = exact_results(composition, n, numel, op, lambda rank, element, at=bits: at[rank, element])  # type: ignore[misc]
        right = right and got == wanted
    if found is None:
        assert right
    elif found.element is not None:  # and not a read of undefined memory, which a later write may cover
        assert not right


def test_unclaimed_rules_are_found_when_recorded() -> None:
    with pytest.raises(ProgramError):
        record_all(BY_NAME["releases_a_borrowed_input"].composition, world_size=3, numel=12, op=ReduceOp.SUM)


def test_a_hang_in_exact_numbers_is_the_hang_of_the_proof() -> None:
    mutant = BY_NAME["send_before_receive"]
    with pytest.raises(Refuted, match="no rank can go on"):
        exact_results(mutant.composition, 3, 12, ReduceOp.SUM, generic)
    assert Kind.ALL_REDUCE is mutant.composition.target
