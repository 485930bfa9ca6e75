"""Which oracle sees which planted fault.

Three oracles judge each mutant in one world: a constant in every element (what a quick benchmark check does),
position-coded integers (what a careful test does), and symbols with the order rule. The first two see values, or a
hang; they run in one lucky schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rsag.collectives import Kind
from rsag.compositions.mutants import Mutant
from rsag.errors import ProgramError
from rsag.interpreters import machine
from rsag.interpreters.exact import Exact, Number, fold
from rsag.interpreters.refuted import Refuted
from rsag.programs import record_all
from rsag.proofs.world import Prover
from rsag.records.proof import Contract, MutantRow, MutationScore, OracleVerdict, ProofOutcome

WORLD_SIZE = 4

ORACLES: dict[str, Callable[[int, int], Number]] = {
    "constant fill": lambda rank, element: 1,  # noqa: ARG005
    "position-coded integers": lambda rank, element: 100 * rank + element,
}


def score(mutants: Sequence[Mutant], world_size: int = WORLD_SIZE) -> MutationScore:
    """Judge every mutant by every oracle; `as_named` says whether the symbols refute just the contract it breaks."""
    return MutationScore(world_size=world_size, rows=tuple(_row(mutant, world_size) for mutant in mutants))


def _row(mutant: Mutant, world_size: int) -> MutantRow:
    numel = mutant.numel(world_size)
    proof = Prover(mutant.op).prove(mutant.composition, world_size, numel)
    refutation = proof.result or proof.shard
    found = None if refutation is None else refutation.contract
    # A fault between the halves must leave the full result proved, and say so.
    result_as_named = (proof.result is None) == (mutant.breaks in (None, Contract.SHARD))
    oracles = {name: _by_value(mutant, world_size, numel, inputs) for name, inputs in ORACLES.items()}
    oracles["symbols"] = OracleVerdict.SURVIVED if refutation is None else OracleVerdict.KILLED
    return MutantRow(
        mutant=mutant.name,
        op=mutant.op,
        breaks=mutant.breaks,
        found=found,
        as_named=found is mutant.breaks and result_as_named,
        result=ProofOutcome.PROVED if proof.result is None else ProofOutcome.REFUTED,
        refutation=refutation,
        oracles=oracles,
    )


def _by_value(mutant: Mutant, world_size: int, numel: int, inputs: Callable[[int, int], Number]) -> OracleVerdict:
    """What a test sees that looks at the full result only: a wrong value, or a hang."""
    try:
        programs = record_all(mutant.composition, world_size=world_size, numel=numel, op=mutant.op)
    except ProgramError:
        return OracleVerdict.NOT_RUN
    assert mutant.composition.target is Kind.ALL_REDUCE
    try:
        outcome = machine.run(programs, Exact(mutant.op, inputs))
    except Refuted as found:
        return OracleVerdict.KILLED if found.contract is Contract.PROGRESS else OracleVerdict.SURVIVED
    want = [fold(mutant.op, [inputs(rank, element) for rank in range(world_size)]) for element in range(numel)]
    same = all(outcome.read(program.result) == want for program in programs)
    return OracleVerdict.SURVIVED if same else OracleVerdict.KILLED
