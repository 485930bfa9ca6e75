"""`rsag run --only contracts`, once in full and then on lean plans: what is passed, refused and left out, and where."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from running import rsag

from rsag.analyze.contracts import CHAPTER, FLOAT_SUM
from rsag.programs.document import load_programs
from rsag.records.capability import Capabilities
from rsag.records.codec import load_document
from rsag.records.contracts import ContractOutcome, ContractRow
from rsag.records.jsonl import read_rows
from rsag.records.plan import Plan, Planted
from rsag.records.run import Run, RunOutcome
from rsag.records.rundir import CAPABILITIES, PLAN, PROGRAMS, REPORT, RUN, VERDICT, rank_file, rank_log
from rsag.records.verdict import Verdict

pytestmark = [pytest.mark.multirank, pytest.mark.timeout(120)]

PASS, FAIL, UNSUPPORTED = ContractOutcome.PASS, ContractOutcome.FAIL, ContractOutcome.UNSUPPORTED


class Ran:
    """A finished `rsag run`, with the directory it was told to use."""

    def __init__(self, done: CompletedProcess[str], home: Path) -> None:
        self.done, self.home, self.out = done, home, home / "run"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Four ranks on Gloo, every operator, dtype and composition."""
    home = tmp_path_factory.mktemp("home")
    words = ("run", "--only", "contracts", "--backend", "gloo", "--world-size", "4", "--out", "run", "--json")
    return Ran(rsag(home, *words), home)


@pytest.fixture(scope="module")
def document(ran: Ran) -> dict[str, Any]:
    """All of standard output, as one JSON document."""
    parsed: dict[str, Any] = json.loads(ran.done.stdout)
    return parsed


# ---------------------------------------------------------------------------------------------------------- in full


def test_the_five_contracts_pass_on_four_ranks_and_come_first(ran: Ran, document: dict[str, Any]) -> None:
    first = document["contracts"][: 5 * 4]
    assert 0 == ran.done.returncode
    assert [(contract, rank) for contract in CHAPTER for rank in range(4)] == [
        (row["contract"], row["rank"]) for row in first
    ]
    assert {"pass"} == {row["outcome"] for row in first}


def test_the_chapters_numbers_were_seen_on_real_ranks(document: dict[str, Any]) -> None:
    seen = [row["got"] for row in document["contracts"][:4]]
    gathered = "gathered [600 604 608 .. 672 676] (20)"
    assert [
        f"shard [600 604 608 612 616]; {gathered}",
        f"shard [620 624 628 632 636]; {gathered}",
        f"shard [640 644 648 652 656]; {gathered}",
        f"shard [660 664 668 672 676]; {gathered}",
    ] == seen


def test_nothing_fails_and_the_result_holds(document: dict[str, Any]) -> None:
    assert ("verdict", 1, "pass", []) == tuple(document[key] for key in ("schema", "version", "outcome", "reasons"))
    assert {"pass", "unsupported"} == {row["outcome"] for row in document["contracts"]}
    assert ["yes", "yes", "cannot-tell", "cannot-tell"] == [row["holds"] for row in document["equivalence"]]


def test_what_gloo_cannot_do_is_unsupported_with_the_collective_named(document: dict[str, Any]) -> None:
    reasons = {row["contract"]: row["reason"] for row in document["contracts"] if row["outcome"] == "unsupported"}
    assert reasons["operator-matrix/sum/int16"].startswith("all_reduce: ")
    assert reasons["operator-matrix/sum/bool"].startswith("all_reduce: ends with wrong values: ")
    assert "not carried by tensors" in reasons["composition/peer/owning"]


def test_progress_goes_to_standard_error(ran: Ran) -> None:
    lines = ran.done.stderr.splitlines()
    assert all(line.startswith("rsag: ") for line in lines)
    assert "rsag: contracts on 4 gloo ranks" in lines
    assert lines[-1] == "rsag: run directory run"


def test_the_directory_holds_every_file_and_each_reads_strictly(ran: Ran) -> None:
    out = ran.out
    plan = load_document(Plan, out / PLAN)
    load_document(Capabilities, out / CAPABILITIES)
    assert {arm.composition for arm in plan.arms} == {program.composition for program in load_programs(out / PROGRAMS)}
    assert PASS.value == load_document(Verdict, out / VERDICT).outcome.value
    for rank in range(4):
        file = read_rows(rank_file(out, rank))
        assert (True, ()) == (file.ended, file.problems)
    expected = {PLAN, PROGRAMS, CAPABILITIES, RUN, VERDICT, REPORT, "launch.log"}
    expected |= {path.name for rank in range(4) for path in (rank_file(out, rank), rank_log(out, rank))}
    assert expected == {path.name for path in out.iterdir()}


def test_run_json_tells_how_it_ended_and_where_each_rank_ran(ran: Ran) -> None:
    run = load_document(Run, ran.out / RUN)
    assert (RunOutcome.COMPLETE, "all 4 ranks ended well", "local") == (run.outcome, run.message, run.launcher)
    assert list(range(4)) == [info.rank for info in run.ranks]
    assert 4 == len({info.pid for info in run.ranks})
    assert {"lo"} == {info.environment["GLOO_SOCKET_IFNAME"] for info in run.ranks}


def test_nothing_is_left_in_the_temporary_directory(ran: Ran) -> None:
    assert [] == [path.name for path in (ran.home / "scratch").iterdir() if path.name.startswith("rsag-")]


def test_show_and_judge_say_the_same_again(ran: Ran) -> None:
    before = (ran.out / VERDICT).read_bytes()
    shown = rsag(ran.home, "show", "run", "--json")
    judged = rsag(ran.home, "judge", "run", "--json")
    assert (0, 0) == (shown.returncode, judged.returncode)
    assert ran.done.stdout == shown.stdout == judged.stdout
    assert before == (ran.out / VERDICT).read_bytes()


def test_show_draws_the_contracts_for_people(ran: Ran) -> None:
    text = rsag(ran.home, "show", "run").stdout
    assert text.count("exact-sum-equivalence") == 4
    assert "✓ pass" in text
    assert max(map(len, text.splitlines())) <= 100


# ------------------------------------------------------------------------------------------------------ on lean plans


def chapter_rows(verdict: Verdict) -> tuple[ContractRow, ...]:
    return tuple(row for row in verdict.contracts if row.contract in (*CHAPTER, FLOAT_SUM))


@pytest.mark.parametrize("world_size", [2, 3])
def test_fewer_ranks_give_fewer_rows_of_the_same_contracts(world_size: int, lean_run: Any) -> None:
    verdict = lean_run(world_size)
    first = verdict.contracts[: 5 * world_size]
    assert [(contract, rank, PASS) for contract in CHAPTER for rank in range(world_size)] == [
        (row.contract, row.rank, row.outcome) for row in first
    ]
    assert () == verdict.reasons


def test_on_one_rank_the_negative_contracts_are_unsupported_with_a_reason(lean_run: Any) -> None:
    verdict = lean_run(1)
    rows = {row.contract: (row.outcome, row.reason) for row in chapter_rows(verdict)}
    assert {
        "exact-sum-equivalence": (PASS, ""),
        "wrong-shard-order-rejected": (UNSUPPORTED, "on one rank there is no other order"),
        "wrong-reduction-op-rejected": (UNSUPPORTED, "on one rank every operator gives its input"),
        "padding-and-trim-equivalence": (PASS, ""),
        "nondivisible-without-padding-rejected": (UNSUPPORTED, "on one rank every size divides"),
        FLOAT_SUM: (PASS, ""),
    } == rows
    assert () == verdict.reasons


def test_a_negative_contract_fails_where_its_fault_is_not_planted(lean_run: Any) -> None:
    verdict = lean_run(3, planted=())
    negative = {contract: contract.endswith("-rejected") for contract in CHAPTER}
    assert {(contract, rank, FAIL if negative[contract] else PASS) for contract in CHAPTER for rank in range(3)} == {
        (row.contract, row.rank, row.outcome) for row in chapter_rows(verdict) if row.contract != FLOAT_SUM
    }
    assert 3 == len(verdict.reasons)


@pytest.mark.parametrize(
    ("fault", "contract"), list(zip(Planted, (contract for contract in CHAPTER if contract.endswith("-rejected"))))
)
def test_each_fault_is_seen_by_its_own_contract_alone(fault: Planted, contract: str, lean_run: Any) -> None:
    verdict = lean_run(2, planted=tuple(one for one in Planted if one is not fault))
    assert {contract} == {row.contract for row in verdict.contracts if row.outcome is FAIL}
