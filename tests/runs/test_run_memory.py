"""`rsag run --only memory` on real Gloo ranks: what the ledger says, and Gloo's own copies by name."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from running import rsag

from rsag.analyze.verdict import judge
from rsag.compositions import find
from rsag.launch import ForkServer, LaunchReport, Outcome, failure
from rsag.plan import make_plan
from rsag.plan.memory import ARMS, memory_arm, plan_memory
from rsag.records.codec import dump_document
from rsag.records.latency import PredictionOutcome, ReasonCode
from rsag.records.memory import MemoryPlan, MemoryVerdict
from rsag.records.plan import Backend, Experiment
from rsag.records.rundir import PLAN
from rsag.reduction import DType, ReduceOp
from rsag.units import GIB, MIB

pytestmark = [pytest.mark.multirank, pytest.mark.timeout(180)]

M = 16 * MIB
CLONE, OUTPUT = ReasonCode.GLOO_REDUCE_SCATTER_CLONE, ReasonCode.GLOO_ALL_GATHER_OUTPUT


# ------------------------------------------------------------------------------------------------------------ in full


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def document(home: Path) -> dict[str, Any]:
    """Four ranks at 16 MiB, every arm; all of standard output as one JSON document."""
    done = rsag(
        home, "run", "--only", "memory", "--bytes", "16MiB", "--backend", "gloo", "-n", "4", "--out", "run", "--json"
    )
    assert 0 == done.returncode, done.stderr
    parsed: dict[str, Any] = json.loads(done.stdout)
    return parsed


def rows_of(document: dict[str, Any], composition: str) -> list[dict[str, Any]]:
    return [row for row in document["memory"] if row["composition"] == composition]


@pytest.mark.parametrize(
    ("composition", "steady", "peak", "codes"),
    [
        ("all_reduce", 1, 1, set()),
        ("reduce_scatter_only", 0.25, 2.25, {CLONE}),
        ("reduce_scatter_in_place", 1, 2, {CLONE}),
        ("reduce_scatter_copied_out", 0.25, 2, {CLONE}),
        ("rs_ag_naive", 1, 3.25, {CLONE, OUTPUT}),
        ("rs_ag_early_release", 1, 2.25, {CLONE, OUTPUT}),
        ("rs_ag_in_place", 1, 2, {CLONE, OUTPUT}),
        ("rs_ag_staged", 1, 1.5, {CLONE, OUTPUT}),
    ],
)
def test_gloo_holds_so_many_payloads_and_each_beyond_the_ledger_has_a_name(
    composition: str, steady: float, peak: float, codes: set[ReasonCode], document: dict[str, Any]
) -> None:
    rows = rows_of(document, composition)
    assert [0, 1, 2, 3] == [row["rank"] for row in rows]
    for row in rows:
        assert (steady * M, peak * M) == (row["measured_steady_bytes"], row["measured_peak_bytes"])
        assert {code.value for code in codes} == {reason["code"] for reason in row["reasons"]}
        same = row["predicted_peak_bytes"] == row["measured_peak_bytes"]
        assert ("agrees" if same else "differs") == row["outcome"]


def test_two_gathers_in_flight_may_hold_two_copies_of_a_chunk(document: dict[str, Any]) -> None:
    for row in rows_of(document, "rs_ag_chunked"):
        assert M + M // 4 <= row["measured_peak_bytes"] <= 2 * M
        assert M == row["measured_steady_bytes"]


def test_padding_is_counted_and_nothing_is_unexplained_anywhere(document: dict[str, Any]) -> None:
    for row in rows_of(document, "rs_ag_padded"):
        assert (M + 4, M + 16) == (row["bytes"], row["predicted_steady_bytes"])
        assert 2 * M + 20 == row["predicted_peak_bytes"]
        assert 2 * (M + 16) == row["measured_peak_bytes"]
    assert list(ARMS) == list(dict.fromkeys(row["composition"] for row in document["memory"]))
    assert "unexplained" not in {reason["code"] for row in document["memory"] for reason in row["reasons"]}


def test_the_state_is_not_the_same_with_its_evidence(document: dict[str, Any]) -> None:
    state = document["equivalence"][3]
    assert ("state", "no") == (state["meaning"], state["holds"])
    assert "rs_ag_in_place 16 MiB at the peak (32 MiB measured)" in state["evidence"]
    assert "reduce_scatter_only keeps 4 MiB of 16 MiB" in state["evidence"]


def test_judge_says_the_same_again_without_a_rank(home: Path, document: dict[str, Any]) -> None:
    assert document == json.loads(rsag(home, "judge", "run", "--json").stdout)


def test_a_size_that_cannot_fit_is_refused_before_any_rank_starts(tmp_path: Path) -> None:
    done = rsag(
        tmp_path, "run", "--only", "memory", "--bytes", "4096GiB", "--backend", "gloo", "-n", "2", "--out", "run"
    )
    assert (2, "") == (done.returncode, done.stdout)
    assert "does not fit into memory; got a predicted peak of" in done.stderr
    assert [] == list((tmp_path / "run").iterdir())


# ------------------------------------------------------------------------------------------------- small and awkward


def launch(server: ForkServer, out: Path, memory: MemoryPlan, world_size: int, *starve: str) -> LaunchReport:
    plan = make_plan(
        world_size=world_size, backend=Backend.GLOO, experiments=[Experiment.MEMORY], deadline_s=60, memory=memory
    )
    dump_document(plan, out / PLAN)
    entry = "memory_ranks:starved" if starve else "rsag.rank.__main__:main"
    arguments = [*starve, "--plan", str(out / PLAN), "--out", str(out)]
    return server.run(entry=entry, arguments=arguments, world_size=world_size, out=out, deadline_s=60)


def measured(server: ForkServer, out: Path, memory: MemoryPlan, world_size: int) -> tuple[MemoryVerdict, ...]:
    report = launch(server, out, memory, world_size)
    if report.outcome is not Outcome.OK:
        raise failure(report)
    return judge(out).memory


def test_on_one_rank_steady_is_as_predicted(fork_server: ForkServer, tmp_path: Path) -> None:
    plan = plan_memory(world_size=1, backend=Backend.GLOO, size=MIB)
    rows = measured(fork_server, tmp_path, plan, 1)
    assert list(ARMS) == [row.composition for row in rows]
    assert [row.predicted_steady_bytes for row in rows] == [row.measured_steady_bytes for row in rows]
    assert ReasonCode.UNEXPLAINED not in {reason.code for row in rows for reason in row.reasons}


def test_empty_payloads_and_shards_of_nothing_but_padding(fork_server: ForkServer, tmp_path: Path) -> None:
    """One element on three ranks: the shards of ranks 1 and 2 hold none of it. And no element at all."""
    names = ("all_reduce", "rs_ag_naive", "rs_ag_padded_early_release", "rs_ag_padded_early_release")
    arms = tuple(
        memory_arm(find(name), 3, numel, ReduceOp.SUM, DType.FLOAT32) for name, numel in zip(names, (0, 0, 0, 1))
    )
    plan = dataclasses.replace(plan_memory(world_size=3, backend=Backend.GLOO, size=12), arms=arms)
    rows = measured(fork_server, tmp_path, plan, 3)
    assert [0] * 9 == [row.measured_peak_bytes for row in rows[:9]]
    assert {PredictionOutcome.AGREES} == {row.outcome for row in rows[:9]}
    assert [12] * 3 == [row.measured_steady_bytes for row in rows[9:]]


def test_out_of_memory_names_the_composition_and_the_role_of_the_buffer(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    plan = plan_memory(world_size=2, backend=Backend.GLOO, size=GIB, compositions=["rs_ag_naive"])
    error = failure(launch(fork_server, tmp_path, plan, 2, str(15 * GIB // 8)))
    assert 4 == error.exit_code
    assert "rank 1 of 2 failed; got exit code 4" in str(error)
    assert "rs_ag_naive ran out of memory on rank 1; got no room for its gathered buffer of 1 GiB" in str(error)
