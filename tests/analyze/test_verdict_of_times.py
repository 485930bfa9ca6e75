"""A run directory with times and wire bytes in it, to its verdict."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from timed import (
    CANDIDATE,
    CASE,
    DIRECT,
    SLOWER,
    Records,
    around,
    plan_of,
    records,
    spoil,
    timing,
    with_time,
    with_wrong,
)

import saved_runs
from rsag.analyze.latency import TimingRow
from rsag.analyze.verdict import judge
from rsag.errors import RecordError
from rsag.records.codec import decode, document, dump_document, encode
from rsag.records.jsonl import RowWriter
from rsag.records.latency import PredictionOutcome, ReasonCode, TimeOutcome, WireRow
from rsag.records.plan import Plan
from rsag.records.rundir import PLAN, rank_file
from rsag.records.verdict import Verdict, VerdictOutcome
from rsag.units import MIB

RUN = plan_of(timing(), world_size=4)


def write_run(directory: Path, own: Records, plan: Plan = RUN) -> Path:
    dump_document(plan, directory / PLAN)
    for rank, rows in own.items():
        write_rank(directory, rank, [*rows, *wire_rows()])
    return directory


def write_rank(directory: Path, rank: int, rows: Iterable[TimingRow | WireRow]) -> None:
    with RowWriter(rank_file(directory, rank), start=saved_runs.rank_start(RUN, rank)) as writer:
        for row in rows:
            writer.write(encode(row))  # type: ignore[arg-type]
        writer.end()


def wire_rows() -> list[WireRow]:
    """What Gloo sends at 1 MiB on four ranks."""
    return [
        WireRow(case=0, arm=arm, calls=3, counter="tcp", sent_bytes=sent * MIB + 2000, received_bytes=None, reason="")
        for arm, sent in ((DIRECT, 1.5), (CANDIDATE, 2.25))
    ]


def test_a_slower_composition_is_an_answer_and_no_failure(tmp_path: Path) -> None:
    verdict = judge(write_run(tmp_path, records(RUN)))
    assert (VerdictOutcome.PASS, ()) == (verdict.outcome, verdict.reasons)
    assert TimeOutcome.SLOWER is verdict.latency[CANDIDATE].outcome
    assert "In this launch, in its one comparison, rs_ag_in_place is slower in 1 of 1 case." == verdict.sentence


def test_gloos_reduce_scatter_is_on_the_wire_and_beside_the_time(tmp_path: Path) -> None:
    verdict = judge(write_run(tmp_path, records(RUN)))
    expected = [PredictionOutcome.AGREES] * 4 + [PredictionOutcome.DIFFERS] * 4
    assert expected == [row.outcome for row in verdict.wire]
    assert [ReasonCode.GLOO_REDUCE_SCATTER] == [reason.code for reason in verdict.latency[CANDIDATE].reasons]
    assert verdict.wire[-1].reasons == verdict.latency[CANDIDATE].reasons


def test_a_wrong_result_fails_the_run(tmp_path: Path) -> None:
    verdict = judge(write_run(tmp_path, spoil(records(RUN), 3, 2, with_wrong(CANDIDATE, 7))))
    assert VerdictOutcome.FAIL is verdict.outcome
    assert ("latency: 7 wrong elements in the results of rs_ag_in_place (1 case)",) == verdict.reasons


def test_a_rank_without_rounds_makes_the_run_invalid(tmp_path: Path) -> None:
    own = records(RUN)
    verdict = judge(write_run(tmp_path, {**own, 2: []}))
    assert VerdictOutcome.INVALID is verdict.outcome
    assert ("latency: no rounds of rank 2 (1 case)",) == verdict.reasons


def test_times_that_cannot_be_make_the_run_invalid(tmp_path: Path) -> None:
    verdict = judge(write_run(tmp_path, spoil(records(RUN), 3, 2, with_time(CANDIDATE, 4, -1))))
    assert VerdictOutcome.INVALID is verdict.outcome
    assert ("latency: rank 3, round 2: -1 ns for rs_ag_in_place (1 case)",) == verdict.reasons


def test_a_difference_between_identical_arms_is_about_its_case_alone(tmp_path: Path) -> None:
    verdict = judge(write_run(tmp_path, records(RUN, around(1.0, 1.2, 1.1, 0.001))))
    assert VerdictOutcome.PASS is verdict.outcome
    assert TimeOutcome.INVALID is verdict.latency[CANDIDATE].outcome
    assert "rs_ag_in_place has no valid case" in verdict.sentence


def test_a_rank_that_left_no_file_is_named(tmp_path: Path) -> None:
    directory = write_run(tmp_path, records(RUN))
    rank_file(directory, 1).unlink()
    verdict = judge(directory)
    assert VerdictOutcome.INVALID is verdict.outcome
    assert ("no records of rank 1", "latency: no rounds of rank 1 (1 case)") == verdict.reasons


@pytest.mark.parametrize("text", ["1e5", '"fast"', "null"])
def test_a_time_of_another_type_is_named_by_file_and_row(tmp_path: Path, text: str) -> None:
    directory = write_run(tmp_path, records(RUN, SLOWER, num_rounds=1))
    path = rank_file(directory, 1)
    path.write_text(path.read_text().replace('"ns":[[', f'"ns":[[{text},', 1))
    with pytest.raises(RecordError, match=r"rank-0001\.jsonl: line 2.*ns\[0\]\[0\]"):
        judge(directory)


def test_the_verdict_survives_the_way_through_its_file(tmp_path: Path) -> None:
    verdict = judge(write_run(tmp_path, records(RUN)))
    fields = {key: value for key, value in document(verdict).items() if key not in ("schema", "version")}
    assert verdict == decode(Verdict, fields)


def test_a_verdict_from_before_times_were_taken_is_still_read() -> None:
    old = {"outcome": "pass", "reasons": [], "equivalence": [], "contracts": []}
    assert ((), (), "") == ((read := decode(Verdict, old)).latency, read.wire, read.sentence)


def test_the_case_is_the_plans() -> None:
    assert RUN.latency is not None
    assert (CASE,) == RUN.latency.cases
