"""`rsag run --only latency,wire` on real Gloo ranks: what it finds by itself, and what planted faults come to."""

from __future__ import annotations

import dataclasses
import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from planted import LATE_S
from running import rsag

from rsag.analyze.verdict import judge
from rsag.cli import main
from rsag.launch import ForkServer, Outcome, failure
from rsag.plan import make_plan
from rsag.plan.latency import plan_chapter_latency, plan_latency
from rsag.records.codec import decode, dump_document, load_document
from rsag.records.jsonl import read_rows
from rsag.records.latency import (
    ArmRole,
    Clock,
    Gate,
    LatencyPlan,
    LatencyRow,
    LookRow,
    Order,
    PredictionOutcome,
    ReasonCode,
    RoundRow,
    TimeOutcome,
    WireVerdict,
)
from rsag.records.merge import MERGE, Merge
from rsag.records.plan import Backend, Experiment, Plan
from rsag.records.run import Run, RunOutcome
from rsag.records.rundir import PLAN, RUN, VERDICT, rank_file
from rsag.records.verdict import Verdict, VerdictOutcome
from rsag.units import KIB, MIB
from saved_runs import write_run

pytestmark = [pytest.mark.multirank, pytest.mark.timeout(150)]

COMPARED = (ArmRole.DIRECT, ArmRole.CANDIDATE, ArmRole.CONTROL)


def rows_of(verdict: Verdict, role: ArmRole) -> list[LatencyRow]:
    return [row for row in verdict.latency if row.role is role]


def codes(row: LatencyRow | WireVerdict) -> set[ReasonCode]:
    return {reason.code for reason in row.reasons}


def has_harness_at_fault(verdict: Verdict) -> bool:
    """What is allowed to happen by chance, in a few of a hundred cases: the direct arm is unlike itself."""
    return any(ReasonCode.AA_DIFFERS in codes(row) for row in verdict.latency)


# ----------------------------------------------------------------------------------------------------- the command line


@dataclasses.dataclass(frozen=True, slots=True)
class Ran:
    """A finished `rsag run` in `home`, with its verdict."""

    code: int
    stdout: str
    stderr: str
    home: Path
    out: Path
    verdict: Verdict


def run_command(home: Path, *words: str) -> Ran:
    """`rsag run` on Gloo; a second time with other permutations where chance had it that A/A differs."""
    for seed in ("0", "1"):
        done = rsag(home, "run", "--backend", "gloo", "--seed", seed, "--out", f"run-{seed}", *words)
        out = home / f"run-{seed}"
        verdict = load_document(Verdict, out / VERDICT)
        if not has_harness_at_fault(verdict):
            break
    return Ran(done.returncode, done.stdout, done.stderr, home, out, verdict)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Four ranks, two sizes, with a gate that this composition cannot pass."""
    words = ("--only", "latency,wire", "--bytes", "64KiB,1MiB", "-n", "4", "--json")
    return run_command(tmp_path_factory.mktemp("home"), *words, "--fail-on", "slower:1%", "--junit", "report/junit.xml")


def test_reduce_scatter_and_all_gather_are_slower_and_every_result_was_right(ran: Ran) -> None:
    candidates = rows_of(ran.verdict, ArmRole.CANDIDATE)
    assert [(64 * KIB, TimeOutcome.SLOWER), (MIB, TimeOutcome.SLOWER)] == [
        (row.bytes, row.outcome) for row in candidates
    ]
    for row in candidates:
        assert row.ratio is not None
        assert row.interval is not None
        assert 1 < row.interval[0] <= row.ratio <= row.interval[1]
    assert (VerdictOutcome.PASS, ()) == (ran.verdict.outcome, ran.verdict.reasons)
    assert "rs_ag_in_place is slower in 2 of 2 cases" in ran.verdict.sentence


def test_the_wire_says_why_in_bytes(ran: Ran) -> None:
    counted = [row for row in ran.verdict.wire if row.bytes == MIB]
    assert [("all_reduce", rank) for rank in range(4)] + [("rs_ag_in_place", rank) for rank in range(4)] == [
        (row.composition, row.rank) for row in counted
    ]
    assert [pytest.approx(1.5 * MIB)] * 8 == [row.predicted_bytes for row in counted]
    assert [pytest.approx(1.50 * MIB, rel=0.01)] * 4 == [row.measured_bytes for row in counted[:4]]
    assert [pytest.approx(2.25 * MIB, rel=0.01)] * 4 == [row.measured_bytes for row in counted[4:]]
    agrees, differs = (PredictionOutcome.AGREES, set()), (PredictionOutcome.DIFFERS, {ReasonCode.GLOO_REDUCE_SCATTER})
    assert [agrees] * 4 + [differs] * 4 == [(row.outcome, codes(row)) for row in counted]


def test_the_known_finding_stands_beside_the_time_as_well(ran: Ran) -> None:
    for row in ran.verdict.latency:
        assert (row.role is ArmRole.CANDIDATE) == (ReasonCode.GLOO_REDUCE_SCATTER in codes(row))


def test_the_ranks_decided_as_the_judge_does(ran: Ran) -> None:
    rows = [row for row in read_rows(rank_file(ran.out, 0)).rows if row["kind"] == "look"]
    last = {look.case: look for look in (decode(LookRow, row) for row in rows)}
    for case in range(2):
        judged = ran.verdict.latency[4 * case : 4 * case + 4]
        assert [row.stop for row in judged] == list(last[case].stops)
        assert {row.rounds for row in judged if row.stop is not None} <= {12, 20, 40}
        assert not last[case].went_on


def test_every_rank_keeps_every_round_and_only_rank_0_the_looks(ran: Ran) -> None:
    kinds = [[str(row["kind"]) for row in read_rows(rank_file(ran.out, rank)).rows] for rank in range(4)]
    rounds = [own.count("round") for own in kinds]
    assert {rounds[0]} == set(rounds)
    assert rounds[0] >= 24
    assert [True, False, False, False] == ["look" in own for own in kinds]


def test_all_of_standard_output_is_the_verdict(ran: Ran) -> None:
    assert json.loads(ran.stdout) == json.loads((ran.out / VERDICT).read_text())


def test_each_case_has_a_line_when_it_is_done(ran: Ran) -> None:
    lines = [line for line in ran.stderr.splitlines() if "rounds" in line]
    cases = ["64 KiB float32 sum, cpu x1", "1 MiB float32 sum, cpu x1"]
    assert [f"rsag: {case}: rs_ag_in_place" for case in cases] == [" ".join(line.split()[:8]) for line in lines]


def test_judge_gives_the_same_bytes_again(ran: Ran) -> None:
    before = (ran.out / VERDICT).read_bytes()
    judged = rsag(ran.home, "judge", ran.out.name, "--json")
    assert (0, ran.stdout) == (judged.returncode, judged.stdout)
    assert before == (ran.out / VERDICT).read_bytes()


def test_the_gate_fails_the_build_and_names_both_cases(ran: Ran) -> None:
    caught = [line for line in ran.stderr.splitlines() if line.startswith("rsag: --fail-on: ")]
    assert 1 == ran.code
    assert ["rs_ag_in_place at 64 KiB, cpu x1", "rs_ag_in_place at 1 MiB, cpu x1"] == [
        line.removeprefix("rsag: --fail-on: ").partition(":")[0] for line in caught
    ]


def test_junit_has_a_failure_for_each_breach(ran: Ran) -> None:
    root = ElementTree.parse(ran.home / "report" / "junit.xml").getroot()
    failed = [case.get("name") for case in root.iter("testcase") if case.find("failure") is not None]
    assert [
        "rs_ag_in_place at 64 KiB float32 sum, cpu x1",
        "rs_ag_in_place at 1 MiB float32 sum, cpu x1",
    ] == failed


def test_two_launches_are_two_runs_and_too_few_for_a_claim(tmp_path: Path) -> None:
    words = ("--only", "latency", "--bytes", "64KiB", "-n", "2", "--rounds", "12", "--launches", "2", "--json")
    done = rsag(tmp_path, "run", "--backend", "gloo", "--seed", "5", "--out", "both", *words)
    both = tmp_path / "both"
    assert 0 == done.returncode, done.stderr
    assert ["launch-01", "launch-02", MERGE] == sorted(path.name for path in both.iterdir())
    assert [5, 6] == [load_document(Plan, both / name / PLAN).seed for name in ("launch-01", "launch-02")]
    merged = load_document(Merge, both / MERGE)
    assert json.loads(done.stdout) == json.loads((both / MERGE).read_text())
    [candidate] = [row for row in merged.rows if row.arm.role is ArmRole.CANDIDATE]
    assert (2, None, None) == (len(candidate.launches), candidate.ratio, candidate.interval)
    assert any("fewer than six launches" in reason for reason in candidate.reasons)
    assert candidate.median_ratio is not None


def test_a_deadline_in_the_middle_keeps_the_rounds_until_then(tmp_path: Path) -> None:
    words = ("--only", "latency", "--bytes", "16MiB,8MiB", "-n", "2", "--precise", "--deadline", "4s")
    done = rsag(tmp_path, "run", "--backend", "gloo", "--out", "run", *words)
    out = tmp_path / "run"
    assert 4 == done.returncode
    assert "the deadline of 4 s passed with rank 0, rank 1 of 2 still running" in done.stderr
    assert "rsag: what was recorded is in run" in done.stderr
    assert RunOutcome.DEADLINE is load_document(Run, out / RUN).outcome
    kept = [[row["round"] for row in read_rows(rank_file(out, rank)).rows if row["kind"] == "round"] for rank in (0, 1)]
    assert all(own == list(range(len(own))) and own for own in kept)
    judged = rsag(tmp_path, "judge", "run", "--json")
    verdict = json.loads(judged.stdout)
    assert (3, "invalid") == (judged.returncode, verdict["outcome"])
    assert "rank 0: no end line: the rank was killed, or still runs" in verdict["reasons"]
    assert "latency: no rounds of rank 0, 1 (1 case)" in verdict["reasons"]
    assert [None] * 8 == [row["ratio"] for row in verdict["latency"]]


# ------------------------------------------------------------------------------------ plans that the command line lacks

TimedRun = Callable[..., tuple[Verdict, Path]]


@pytest.fixture(scope="module")
def timed_run(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> TimedRun:
    """`timed_run(timing, entry=...)` gives the verdict on two ranks and their directory."""

    def run(timing: LatencyPlan, entry: str = "rsag.rank.__main__:main") -> tuple[Verdict, Path]:
        out: Path = tmp_path_factory.mktemp("run")
        plan = make_plan(
            world_size=2, backend=Backend.GLOO, experiments=(Experiment.LATENCY,), deadline_s=60, latency=timing
        )
        dump_document(plan, out / PLAN)
        arguments = ["--plan", str(out / PLAN), "--out", str(out)]
        report = fork_server.run(entry=entry, arguments=arguments, world_size=2, out=out, deadline_s=60)
        if report.outcome is not Outcome.OK:
            raise failure(report)
        verdict = judge(out)
        dump_document(verdict, out / VERDICT)
        return verdict, out

    return run


def few_rounds(**asked: Any) -> LatencyPlan:
    """One size, to the first look."""
    return plan_latency(world_size=2, backend=Backend.GLOO, sizes=(64 * KIB,), max_rounds=12, **asked)


def rounds_in(out: Path, rank: int) -> list[RoundRow]:
    return [decode(RoundRow, row) for row in read_rows(rank_file(out, rank)).rows if row["kind"] == "round"]


def test_a_wrong_result_fails_the_run_and_has_no_ratio(timed_run: TimedRun, tmp_path: Path) -> None:
    verdict, out = timed_run(few_rounds(), "planted:wrong")
    [candidate] = rows_of(verdict, ArmRole.CANDIDATE)
    assert (TimeOutcome.INVALID, None, None) == (candidate.outcome, candidate.ratio, candidate.cv_ratio)
    assert ReasonCode.WRONG_RESULT in codes(candidate)
    # Each of the 12 rounds has two cycles of warm-up and four that count, and each is one wrong element on one rank.
    wrong = f"{12 * 6} wrong elements in the results of rs_ag_in_place"
    assert wrong in [reason.message for reason in candidate.reasons]
    assert (VerdictOutcome.FAIL, f"latency: {wrong} (1 case)") == (verdict.outcome, verdict.reasons[0])
    assert candidate.median_us is not None
    assert [(0, 0, 0, 0)] * 12 == [row.wrong for row in rounds_in(out, 0)]
    assert 1 == rsag(tmp_path, "judge", str(out)).returncode


def test_a_late_rank_is_seen_as_skew_and_does_not_set_the_direct_arm_apart_from_itself(timed_run: TimedRun) -> None:
    verdict, _ = timed_run(few_rounds(), "planted:late")
    for role in COMPARED:
        [row] = rows_of(verdict, role)
        assert ReasonCode.SKEW in codes(row)
        assert row.median_us is not None
        assert row.min_median_us is not None
        # The late rank itself finds all others waiting.
        assert 0.9e6 * LATE_S <= row.median_us
        assert row.min_median_us < 0.75 * row.median_us
    [control] = rows_of(verdict, ArmRole.CONTROL)
    assert control.interval is not None
    assert control.interval[0] < 1.1
    assert 1 / 1.1 < control.interval[1]


def test_the_cv_gate_gives_a_ratio_only_where_both_are_calm(timed_run: TimedRun) -> None:
    verdict, _ = timed_run(few_rounds(gate=Gate.CV))
    [direct] = rows_of(verdict, ArmRole.DIRECT)
    for row in rows_of(verdict, ArmRole.CANDIDATE):
        assert row.cv is not None
        assert direct.cv is not None
        calm = max(row.cv, direct.cv) <= 0.05
        assert row.ratio == row.cv_ratio
        assert calm == (row.ratio is not None) == (ReasonCode.UNSTABLE_CV not in codes(row))
        assert row.interval is not None  # the other gate's is shown beside it
    assert "the CV gate gives a ratio in" in verdict.sentence


def test_the_chapters_schedule_is_one_round_of_thirteen_cycles_in_turns(timed_run: TimedRun) -> None:
    chapter = plan_chapter_latency(world_size=2, backend=Backend.GLOO)
    small = tuple(case for case in chapter.cases if case.bytes <= MIB)
    verdict, out = timed_run(dataclasses.replace(chapter, cases=small, wire_cases=()))
    assert [(row.bytes, row.composition) for row in verdict.latency] == [
        (case.bytes, name) for case in small for name in ("all_reduce", "rs_ag_naive")
    ]
    for rank in (0, 1):
        rounds = rounds_in(out, rank)
        assert [0, 1, 2] == [row.case for row in rounds]
        assert {(2, 13)} == {(len(row.ns), len(row.ns[0])) for row in rounds}
        for row in rounds:
            assert sorted(row.started_us) == list(row.started_us)
    assert all(
        row.ratio is not None or ReasonCode.UNSTABLE_CV in codes(row) for row in rows_of(verdict, ArmRole.CANDIDATE)
    )


# ----------------------------------------------------------------------------- what the command line plans, and refuses


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str]:
    """Exit code and standard error of `rsag run` in this process."""
    with pytest.raises(SystemExit) as end:
        main(["run", "--backend", "gloo", *words])
    return end.value.code, capsys.readouterr().err


def saved(capsys: pytest.CaptureFixture[str], home: Path, *words: str) -> Plan:
    code, err = command(capsys, "--save-plan", "p.json", *words)
    assert code == 0, err
    return load_document(Plan, home / "p.json")


def test_the_chapter_is_a_preset(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    plan = saved(capsys, home, "--preset", "chapter")
    assert tuple(Experiment) == plan.experiments
    assert plan_chapter_latency(world_size=4, backend=Backend.GLOO) == plan.latency
    assert (Gate.CV, Order.ALTERNATING) == (plan.latency.gate, plan.latency.order)


def test_every_option_reaches_the_plan(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    words = "--bytes 2KiB,1MiB --composition rs_ag_naive,rs_ag_chunked --clock cpu --dtype bfloat16 --op max --gate cv"
    plan = saved(capsys, home, *words.split(), *("--rounds", "20", "--margin", "1.5%", "--precise", "-n", "2"))
    timing = plan_latency(
        world_size=2,
        backend=Backend.GLOO,
        sizes=(2 * KIB, MIB),
        candidates=("rs_ag_naive", "rs_ag_chunked"),
        clocks=(Clock.CPU,),
        dtype=type(plan.dtype)("bfloat16"),
        op=type(plan.contracts.ops[0])("max"),
        gate=Gate.CV,
        max_rounds=20,
        margin=0.015,
        precisely=True,
    )
    assert timing == plan.latency


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--preset chaptr", "unknown preset; got 'chaptr'; did you mean chapter?"),
        ("--preset chapter --bytes 1MiB", "a preset says all of what is timed; leave it out, or the other options"),
        ("--bytes 1023", "a size is a multiple of the dtype's; got 1023 B; expected a multiple of 4 B (float32)"),
        ("--bytes big", "not a size; got 'big'"),
        ("--bytes ,", "there is nothing to time"),
        ("--rounds 0", "too few rounds for any conclusion; got 0; expected at least 12, the first look"),
        ("--margin 0%", "an equivalence margin is a ratio above 0"),
        ("--margin nan", "an equivalence margin is a ratio above 0; got nan"),
        ("--margin wide", "not a percentage; got 'wide'"),
        ("--gate cvv", "unknown gate; got 'cvv'; did you mean cv?"),
        ("--clock graph", "gloo has no such clock; got graph; expected cpu"),
        ("--dtype float31", "unknown dtype; got 'float31'"),
        ("--fail-on faster", "not a condition to fail on; got 'faster'"),
        (
            "--only proof --bytes 1MiB",
            "nothing is timed in this run; got options that say what to time; add latency",
        ),
        ("--launches 0", "a run is launched at least once; got 0"),
        ("--only contracts --launches 2", "launches are merged by their times, and nothing is timed"),
        ("--launches 2 --fail-on slower", "--fail-on and --junit look at one launch; got --launches 2"),
        ("--launches 2 --junit x.xml", "--fail-on and --junit look at one launch; got --launches 2"),
        ("--only latency -n 1", "on one rank no byte moves: there is nothing to compare; ask for two ranks or more"),
        ("--only latency,wire -n 1", "on one rank no byte moves: there is nothing to compare"),
    ],
)
def test_what_cannot_be_timed_is_refused_with_what_to_change_and_nothing_written(
    capsys: pytest.CaptureFixture[str], home: Path, words: str, message: str
) -> None:
    code, err = command(capsys, *words.split())
    assert 2 == code
    assert message in err
    assert [] == list(home.iterdir())


def test_one_rank_is_told_what_is_left_out(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    code, err = command(capsys, "-n", "1", "--save-plan", "p.json")
    assert 0 == code
    assert "rsag: on one rank no byte moves: there is nothing to compare; latency and wire left out" in err
    plan = load_document(Plan, home / "p.json")
    assert None is plan.latency
    assert tuple(one for one in Experiment if one not in (Experiment.LATENCY, Experiment.WIRE)) == plan.experiments


@pytest.mark.parametrize(
    ("outcome", "conditions", "expected"),
    [
        (TimeOutcome.INCONCLUSIVE, ("inconclusive",), 3),
        (TimeOutcome.INCONCLUSIVE, ("slower:10%",), 0),
        (TimeOutcome.INCONCLUSIVE, (), 0),
        (TimeOutcome.SLOWER, ("inconclusive",), 0),
        (TimeOutcome.SLOWER, ("slower:10%",), 1),
        (TimeOutcome.SLOWER, ("slower:25%",), 0),
        (TimeOutcome.SLOWER, ("inconclusive", "slower"), 1),
    ],
)
def test_a_gate_ends_with_its_own_exit_code(
    outcome: TimeOutcome,
    conditions: tuple[str, ...],
    expected: int,
    capsys: pytest.CaptureFixture[str],
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a run of twelve rounds that all found 1.2, or all found nothing."""
    verdict = judge(write_run(home / "known", 1, ratio=1.2 if outcome is TimeOutcome.SLOWER else 1.0))
    [candidate] = rows_of(verdict, ArmRole.CANDIDATE)
    found = dataclasses.replace(
        verdict, outcome=VerdictOutcome.PASS, latency=(dataclasses.replace(candidate, outcome=outcome),)
    )
    monkeypatch.setattr("rsag.lab.run_plan", lambda *_, **__: found)
    gates = [word for condition in conditions for word in ("--fail-on", condition)]
    code, err = command(capsys, "--only", "latency", "-n", "2", "--out", "run", *gates)
    assert expected == code
    assert bool(expected) == ("rsag: --fail-on: rs_ag_in_place at 1 MiB, cpu x1: " in err)
