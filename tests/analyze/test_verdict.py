"""A run directory, whole or damaged, to the verdict it deserves."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable
from pathlib import Path

import observed
import pytest
from observed import plan_of

import saved_runs
from rsag.analyze.verdict import judge
from rsag.collectives import Kind
from rsag.errors import RecordError, UsageError
from rsag.records.codec import dump_document, encode
from rsag.records.contracts import Observation
from rsag.records.jsonl import RowWriter
from rsag.records.plan import Experiment, Plan
from rsag.records.proof import Contract, ProofOutcome, ProofRow, Proofs, Refutation
from rsag.records.rundir import PLAN, PROOFS, RUN, rank_file
from rsag.records.verdict import Equivalence, Holds, Meaning, Verdict, VerdictOutcome
from rsag.reduction import ReduceOp

WORLD_SIZE = 3


def write_rank(
    directory: Path, rank: int, rows: Iterable[object], *, plan: Plan | None = None, fails: bool = False
) -> None:
    plan = plan or plan_of(WORLD_SIZE)
    writer = RowWriter(rank_file(directory, rank), start=saved_runs.rank_start(plan, rank), now_ns=lambda: 7)
    try:
        with writer:
            for row in rows:
                writer.write(encode(row))  # type: ignore[arg-type]
            if fails:
                raise OSError("no space left")
            writer.end()
    except OSError:
        assert fails


def write_run(
    directory: Path, plan: Plan | None = None, *, spoil: Callable[[Observation], Observation] = lambda seen: seen
) -> Path:
    """A complete run of the chapter's contracts."""
    plan = plan or plan_of(WORLD_SIZE)
    dump_document(plan, directory / PLAN)
    if Experiment.CONTRACTS in plan.experiments:
        for rank in range(plan.world_size):
            write_rank(directory, rank, map(spoil, observed.chapter(plan, rank)), plan=plan)
    return directory


def proofs(*, refuted: str | None = None) -> Proofs:
    refutation = Refutation(
        contract=Contract.RESULT, message="wrong", world_size=2, numel=4, op=ReduceOp.SUM, rank=1, element=0
    )
    rows = [
        ProofRow(
            composition=name,
            target=Kind.ALL_REDUCE,
            op=ReduceOp.SUM,
            num_worlds=600,
            num_not_claimed=0,
            result=ProofOutcome.REFUTED if name == refuted else ProofOutcome.PROVED,
            shard=ProofOutcome.NOT_CLAIMED,
            result_refutation=refutation if name == refuted else None,
        )
        for name in ("all_reduce", "rs_ag_naive", "rs_ag_in_place", "ring_all_reduce")
    ]
    return Proofs(
        world_sizes=(2,), numels="N", ops=(ReduceOp.SUM,), num_worlds=2400, seconds=0.1, scope="", rows=tuple(rows)
    )


def meaning(verdict: Verdict, which: Meaning) -> Equivalence:
    return next(row for row in verdict.equivalence if row.meaning is which)


# --------------------------------------------------------------------------------------------------------- whole runs


def test_a_complete_run_passes_with_all_its_rows(tmp_path: Path) -> None:
    verdict = judge(write_run(tmp_path))
    assert (VerdictOutcome.PASS, (), 6 * WORLD_SIZE) == (verdict.outcome, verdict.reasons, len(verdict.contracts))
    result = meaning(verdict, Meaning.RESULT)
    assert (Holds.YES, "18 of 18 contract rows pass on 3 gloo ranks") == (result.holds, result.evidence)


def test_the_four_meanings_come_in_their_order_and_two_were_not_examined(tmp_path: Path) -> None:
    verdict = judge(write_run(tmp_path))
    expected = [
        (Meaning.RESULT, Holds.YES),
        (Meaning.STEPS, Holds.YES),
        (Meaning.EXECUTION, Holds.CANNOT_TELL),
        (Meaning.STATE, Holds.CANNOT_TELL),
    ]
    assert expected == [(row.meaning, row.holds) for row in verdict.equivalence]


def test_a_failing_contract_fails_the_run_and_the_result(tmp_path: Path) -> None:
    def spoil(seen: Observation) -> Observation:
        is_it = seen.contract == "exact-sum-equivalence"
        return observed.with_element(seen, "gathered", 0, 1) if is_it else seen

    verdict = judge(write_run(tmp_path, spoil=spoil))
    assert VerdictOutcome.FAIL is verdict.outcome
    assert ("exact-sum-equivalence fails on 3 ranks",) == verdict.reasons
    assert Holds.NO is meaning(verdict, Meaning.RESULT).holds


def test_what_the_backend_cannot_do_counts_neither_way(tmp_path: Path) -> None:
    def spoil(seen: Observation) -> Observation:
        is_it = seen.contract == "wrong-reduction-op-rejected"
        return Observation(contract=seen.contract, unsupported="no MAX here") if is_it else seen

    verdict = judge(write_run(tmp_path, spoil=spoil))
    assert VerdictOutcome.PASS is verdict.outcome
    assert meaning(verdict, Meaning.RESULT).evidence == "15 of 15 contract rows pass on 3 gloo ranks"


# -------------------------------------------------------------------------------------------------------------- proofs


def test_proofs_alone_pass_without_a_rank(tmp_path: Path) -> None:
    directory = write_run(tmp_path, plan_of(4, Experiment.PROOF))
    dump_document(proofs(), directory / PROOFS)
    verdict = judge(directory)
    assert (VerdictOutcome.PASS, ()) == (verdict.outcome, verdict.contracts)
    assert meaning(verdict, Meaning.RESULT).evidence == "1,200 worlds proved on symbols"


def test_refuted_proofs_fail_the_run_though_every_rank_passes(tmp_path: Path) -> None:
    directory = write_run(tmp_path)
    dump_document(proofs(refuted="rs_ag_naive"), directory / PROOFS)
    verdict = judge(directory)
    assert VerdictOutcome.FAIL is verdict.outcome
    assert ("rs_ag_naive is refuted under sum",) == verdict.reasons
    result = meaning(verdict, Meaning.RESULT)
    assert (Holds.NO, True) == (result.holds, result.evidence.startswith("1,200 worlds refuted in part"))


@pytest.mark.parametrize(
    ("launcher", "problems"), [("local", ["no proofs.json, and the plan asks for proofs"]), ("torchrun", [])]
)
def test_proofs_that_our_own_launcher_should_have_left_are_missed(
    tmp_path: Path, launcher: str, problems: list[str]
) -> None:
    directory = write_run(tmp_path, plan_of(3, Experiment.PROOF, Experiment.CONTRACTS))
    dump_document(dataclasses.replace(saved_runs.run(1), launcher=launcher), directory / RUN)
    assert problems == [reason for reason in judge(directory).reasons if "proofs.json" in reason]


def test_a_run_of_proofs_that_left_none_is_invalid(tmp_path: Path) -> None:
    verdict = judge(write_run(tmp_path, plan_of(4, Experiment.PROOF)))
    assert VerdictOutcome.INVALID is verdict.outcome
    assert ("no proofs.json, and nothing else to judge by",) == verdict.reasons
    assert Holds.CANNOT_TELL is meaning(verdict, Meaning.RESULT).holds


# --------------------------------------------------------------------------------------------------------------- steps


def test_steps_and_bytes_are_read_off_the_predictions(tmp_path: Path) -> None:
    steps = meaning(judge(write_run(tmp_path, plan_of(4))), Meaning.STEPS)
    evidence = "predicted: AllReduce 6 steps, ReduceScatter + AllGather 6; per rank 1.5 M and 1.5 M on the wire"
    assert (Holds.YES, evidence) == (steps.holds, steps.evidence)


def test_other_steps_are_another_number_of_steps(tmp_path: Path) -> None:
    plan = plan_of(4)
    predictions = tuple(
        dataclasses.replace(row, steps=2) if row.composition == "all_reduce" else row for row in plan.predictions
    )
    verdict = judge(write_run(tmp_path, dataclasses.replace(plan, predictions=predictions)))
    assert Holds.NO is meaning(verdict, Meaning.STEPS).holds
    assert VerdictOutcome.PASS is verdict.outcome, "another number of steps is a finding, not a failure"


def test_without_predictions_nothing_is_said_of_steps(tmp_path: Path) -> None:
    verdict = judge(write_run(tmp_path, dataclasses.replace(plan_of(4), predictions=())))
    assert Holds.CANNOT_TELL is meaning(verdict, Meaning.STEPS).holds


# ------------------------------------------------------------------------------------------------------- damaged runs


def reasons_of_invalid(directory: Path) -> tuple[str, ...]:
    verdict = judge(directory)
    assert VerdictOutcome.INVALID is verdict.outcome
    return verdict.reasons


def test_a_missing_rank_file_is_invalid_and_the_rank_named(tmp_path: Path) -> None:
    directory = write_run(tmp_path)
    rank_file(directory, 1).unlink()
    assert reasons_of_invalid(directory)[0] == "no records of rank 1"


def test_a_rank_that_left_no_whole_line_is_missing(tmp_path: Path) -> None:
    directory = write_run(tmp_path)
    rank_file(directory, 2).write_bytes(b"")
    assert reasons_of_invalid(directory)[0] == "no records of rank 2"


@pytest.mark.parametrize(
    ("cut", "problem"),
    [(10, "line 8 is truncated: the rank was killed while writing it"), (15, "no end line: the rank was killed")],
)
def test_a_truncated_rank_file_is_invalid_and_the_rank_named(tmp_path: Path, cut: int, problem: str) -> None:
    directory = write_run(tmp_path)
    whole = rank_file(directory, 1).read_bytes()
    rank_file(directory, 1).write_bytes(whole[:-cut])
    assert reasons_of_invalid(directory)[0].startswith(f"rank 1: {problem}")


def test_what_a_truncated_rank_file_lacks_is_counted_once_and_settles_nothing(tmp_path: Path) -> None:
    directory = write_run(tmp_path)
    whole = rank_file(directory, 1).read_bytes()
    rank_file(directory, 1).write_bytes(whole[: whole.index(b"wrong-reduction-op")])
    assert "4 contract rows were never observed" == reasons_of_invalid(directory)[-1]
    assert Holds.CANNOT_TELL is judge(directory).equivalence[0].holds


def test_a_failed_line_is_invalid_and_says_once_what_failed(tmp_path: Path) -> None:
    directory = write_run(tmp_path)
    rank_file(directory, 0).unlink()
    write_rank(directory, 0, observed.chapter(plan_of(WORLD_SIZE), 0), fails=True)
    assert ("rank 0: the rank failed: OSError: no space left",) == reasons_of_invalid(directory)


def test_a_missing_rank_makes_the_result_neither_a_yes_nor_a_no(tmp_path: Path) -> None:
    directory = write_run(tmp_path)
    rank_file(directory, 1).unlink()
    verdict = judge(directory)
    assert VerdictOutcome.INVALID is verdict.outcome
    assert not any("fails on" in reason for reason in verdict.reasons)
    assert Holds.CANNOT_TELL is verdict.equivalence[0].holds


# -------------------------------------------------------------------------------------------------------- strictness


def test_an_unknown_key_in_the_plan_is_an_error_that_names_it(tmp_path: Path) -> None:
    directory = write_run(tmp_path)
    plan = json.loads((directory / PLAN).read_text())
    plan["contracts"]["tolerance"] = 1
    (directory / PLAN).write_text(json.dumps(plan))
    with pytest.raises(RecordError, match=r"plan\.json: contracts: unknown key 'tolerance'"):
        judge(directory)


def test_a_plan_of_another_version_is_an_error_that_says_so(tmp_path: Path) -> None:
    directory = write_run(tmp_path)
    plan = json.loads((directory / PLAN).read_text())
    (directory / PLAN).write_text(json.dumps(plan | {"version": 2}))
    with pytest.raises(RecordError, match=r"plan\.json: another version; got integer 2; expected 1; "):
        judge(directory)


def test_a_corrupt_line_is_an_error_that_names_file_and_line(tmp_path: Path) -> None:
    directory = write_run(tmp_path)
    lines = rank_file(directory, 1).read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b":", b"", 1)
    rank_file(directory, 1).write_bytes(b"".join(lines))
    with pytest.raises(RecordError, match=r"rank-0001\.jsonl: not JSON: line 3, column "):
        judge(directory)


def test_a_row_with_an_unknown_key_is_an_error_that_names_file_and_line(tmp_path: Path) -> None:
    directory = write_run(tmp_path)
    lines = rank_file(directory, 1).read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b'"contract"', b'"contrakt"', 1)
    rank_file(directory, 1).write_bytes(b"".join(lines))
    with pytest.raises(RecordError, match=r"rank-0001\.jsonl: line 3: unknown key 'contrakt'"):
        judge(directory)


def test_what_is_no_run_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no plan\.json in it"):
        judge(tmp_path)
