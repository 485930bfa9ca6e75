"""`rsag run --only kernels` on real Gloo ranks: calls in marked ranges, for Gloo has no kernels; and spoilt records."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from running import rsag

from rsag.analyze.verdict import judge
from rsag.plan import make_plan
from rsag.rank import native
from rsag.records.codec import dump_document
from rsag.records.execution import Probe
from rsag.records.latency import PredictionOutcome
from rsag.records.plan import Backend, Experiment
from rsag.records.rundir import PLAN, rank_file, trace_file
from rsag.records.verdict import Holds, Meaning, Verdict, VerdictOutcome

pytestmark = [pytest.mark.multirank, pytest.mark.timeout(180)]

NUM_RANKS = 3


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    words = ("run", "--only", "kernels", "--bytes", "64KiB", "--backend", "gloo", "-n", str(NUM_RANKS), "--out", "run")
    done = rsag(home, *words)
    assert 0 == done.returncode, done.stderr
    return home / "run"


@pytest.fixture
def copied(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "run"))


def execution_of(verdict: Verdict) -> Any:
    [row] = [row for row in verdict.equivalence if row.meaning is Meaning.EXECUTION]
    return row


def test_five_calls_against_five_and_five_on_every_rank(run: Path) -> None:
    [probe] = judge(run).kernels
    counts = {"direct": {"all_reduce": 5}, "decomposed": {"reduce_scatter": 5, "all_gather": 5}}
    assert (Probe.RANKS, PredictionOutcome.AGREES, counts) == (probe.probe, probe.outcome, probe.predicted)
    assert sorted([*counts.items()] * NUM_RANKS, key=str) == sorted(
        ((row.range, row.calls) for row in probe.ranges), key=str
    )


def test_the_boundaries_are_set_side_by_side_with_their_difference(run: Path) -> None:
    rows = judge(run).boundaries
    assert [(rank, quantity, 5, 10, 5) for rank in range(NUM_RANKS) for quantity in ("c10d calls", "Works")] == [
        (row.rank, row.quantity, row.direct, row.decomposed, row.difference) for row in rows
    ]


def test_the_execution_is_not_the_same_and_gloos_detour_is_said(run: Path) -> None:
    row = execution_of(judge(run))
    assert Holds.NO is row.holds
    assert "5 all_reduce against 5 reduce_scatter + 5 all_gather calls" in row.evidence
    assert "gloo ran all_reduce for reduce_scatter" in row.evidence


def test_every_result_of_the_ranges_counts_for_the_same_result(run: Path) -> None:
    [row] = [row for row in judge(run).equivalence if row.meaning is Meaning.RESULT]
    assert (Holds.YES, f"every element of {2 * 5 * NUM_RANKS} profiled results right") == (row.holds, row.evidence)


def test_runs_of_another_payload_are_not_compared(run: Path, tmp_path: Path) -> None:
    words = ("run", "--only", "kernels", "--bytes", "1KiB", "--backend", "gloo", "-n", str(NUM_RANKS), "--out", "other")
    assert 0 == rsag(tmp_path, *words).returncode
    refused = rsag(tmp_path, "compare", str(run), "other")
    assert 2 == refused.returncode
    assert "plan: kernels bytes: 65532 vs 1020" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--plan", "nowhere.json", "--out", "."), 2, "nowhere.json"),
        (("--plan", "plan.json", "--out", "."), 2, "asks for no kernels; write a plan with rsag run --only kernels"),
    ],
)
def test_the_native_probe_says_what_is_wrong_with_its_plan(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    dump_document(make_plan(world_size=2, backend=Backend.NCCL, experiments=(Experiment.CONTRACTS,)), Path(PLAN))
    assert code == native.main(arguments)
    assert message in capsys.readouterr().err


def test_a_rank_without_its_trace_leaves_the_run_invalid(copied: Path) -> None:
    trace_file(copied, 1).unlink()
    verdict = judge(copied)
    assert (VerdictOutcome.INVALID, ("rank 1: no trace-0001.json.gz",)) == (verdict.outcome, verdict.reasons)
    assert Holds.CANNOT_TELL is execution_of(verdict).holds


def test_a_call_that_is_not_in_the_trace_differs_from_the_ledger(copied: Path) -> None:
    path = trace_file(copied, 2)
    trace = json.loads(gzip.decompress(path.read_bytes()))
    gathers = [event for event in trace["traceEvents"] if event.get("name") == "c10d::_allgather_base_"]
    trace["traceEvents"].remove(gathers[-1])
    path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    [probe] = judge(copied).kernels
    assert PredictionOutcome.AGREES is not probe.outcome
    assert any("5 reduce_scatter + 4 all_gather" in reason for reason in probe.reasons)


def test_a_wrong_endpoint_fails_the_run(copied: Path) -> None:
    path = rank_file(copied, 0)
    path.write_text(path.read_text().replace('"arm":1,"wrong":0', '"arm":1,"wrong":7'))
    verdict = judge(copied)
    assert VerdictOutcome.FAIL is verdict.outcome
    assert ("kernels: 7 wrong elements in rs_ag_in_place on rank 0",) == verdict.reasons


def test_a_damaged_trace_is_named(copied: Path) -> None:
    trace_file(copied, 0).write_bytes(b"\x1f\x8b not a trace")
    verdict = judge(copied)
    assert VerdictOutcome.INVALID is verdict.outcome
    [reason] = verdict.reasons
    assert reason.startswith("trace-0000.json.gz: ")
