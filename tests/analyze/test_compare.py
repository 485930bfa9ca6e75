"""Two runs side by side: what is called a change, what is called a difference, and what is neither."""

from __future__ import annotations

import dataclasses

import pytest

import saved_runs
from rsag.analyze.compare import compare
from rsag.analyze.judged import JudgedRun
from rsag.analyze.mixed import differences
from rsag.errors import UsageError
from rsag.records.compare import CompareRow, Comparison, RatioChange
from rsag.records.contracts import ContractOutcome
from rsag.records.latency import ArmRole, LatencyRow, PredictionOutcome, TimeOutcome
from rsag.records.memory import MemoryVerdict
from rsag.records.plan import Backend
from rsag.units import MIB
from saved_runs import AA_DIFFERS, CANDIDATE, CASE, DIRECT, judged, rank_info, row

PASS, FAIL = ContractOutcome.PASS, ContractOutcome.FAIL
SLOWER = TimeOutcome.SLOWER


def side_by_side(a: LatencyRow, b: LatencyRow) -> CompareRow:
    [found] = compare(judged(1, a), judged(2, b)).rows
    return found


def slower(low: float, high: float, *, median_us: float = 100.0) -> LatencyRow:
    return row(CANDIDATE, (low * high) ** 0.5, outcome=SLOWER, interval=(low, high), median_us=median_us)


# ------------------------------------------------------------------------------------------------------------- changes


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((1.1, 1.2), (1.3, 1.4), RatioChange.HIGHER),
        ((1.3, 1.4), (1.1, 1.2), RatioChange.LOWER),
        ((1.1, 1.3), (1.2, 1.4), RatioChange.OVERLAP),
        ((1.1, 1.2), (1.2, 1.3), RatioChange.OVERLAP),
        ((1.2, 1.4), (1.1, 1.3), RatioChange.OVERLAP),
        ((1.1, 1.9), (1.2, 1.3), RatioChange.OVERLAP),
    ],
)
def test_a_ratio_changes_only_where_the_intervals_do_not_touch(
    a: tuple[float, float], b: tuple[float, float], expected: RatioChange
) -> None:
    assert expected is side_by_side(slower(*a), slower(*b)).ratio_change


def test_an_inconclusive_run_has_an_interval_to_compare_and_no_ratio() -> None:
    undecided = row(CANDIDATE, outcome=TimeOutcome.INCONCLUSIVE, interval=(0.9, 1.1))
    found = side_by_side(undecided, slower(1.3, 1.4))
    assert RatioChange.HIGHER is found.ratio_change
    assert found.a is not None
    assert (None, (0.9, 1.1)) == (found.a.ratio, found.a.interval)


def test_the_change_of_medians_is_b_over_a() -> None:
    found = side_by_side(slower(1.1, 1.2, median_us=80.0), slower(1.1, 1.2, median_us=100.0))
    assert 1.25 == found.median_change


def test_nothing_is_made_of_an_invalid_side() -> None:
    invalid = row(CANDIDATE, outcome=TimeOutcome.INVALID, interval=(2.0, 3.0), reasons=[AA_DIFFERS])
    found = side_by_side(slower(1.1, 1.2), invalid)
    assert (RatioChange.CANNOT_TELL, "invalid in B", None) == (found.ratio_change, found.why, found.median_change)
    assert found.b is not None
    assert (100.0, None, ("aa-differs",)) == (found.b.median_us, found.b.ratio, found.b.reasons)


def test_without_an_interval_it_cannot_be_told() -> None:
    found = side_by_side(row(CANDIDATE, 1.3, outcome=SLOWER), slower(1.1, 1.2))
    assert (RatioChange.CANNOT_TELL, "no interval in A") == (found.ratio_change, found.why)


def test_the_direct_arm_has_medians_and_no_ratio_to_change() -> None:
    found = side_by_side(row(DIRECT, median_us=50.0), row(DIRECT, median_us=40.0))
    assert (0.8, None) == (found.median_change, found.ratio_change)


def test_arms_of_one_run_alone_stand_beside_nothing() -> None:
    small, large = row(CANDIDATE), row(CANDIDATE, case=dataclasses.replace(CASE, bytes=16 * MIB))
    found = compare(judged(1, small), judged(2, large)).rows
    assert [(True, False), (False, True)] == [(one.a is not None, one.b is not None) for one in found]
    assert ["not in B", "not in A"] == [one.why for one in found]


def test_other_calls_per_timing_are_another_case() -> None:
    found = compare(judged(1, row(CANDIDATE)), judged(2, row(CANDIDATE, case=dataclasses.replace(CASE, calls=10)))).rows
    assert 2 == len(found)


# ----------------------------------------------------------------------------------------------------------- contracts


def contracts_of(a: dict[tuple[str, int], ContractOutcome], b: dict[tuple[str, int], ContractOutcome]) -> Comparison:
    return compare(judged(1, contracts=a), judged(2, contracts=b))


def test_only_contracts_that_came_out_differently_are_listed() -> None:
    found = contracts_of({("sum", 0): PASS, ("sum", 1): PASS}, {("sum", 0): PASS, ("sum", 1): FAIL})
    assert [("sum", 1, PASS, FAIL)] == [(one.contract, one.rank, one.a, one.b) for one in found.contracts]
    assert 1 == found.num_same_contracts


def test_a_contract_that_one_run_did_not_try_differs() -> None:
    found = contracts_of({("sum", 0): PASS}, {("sum", 0): PASS, ("new", 0): PASS})
    assert [("new", None, PASS)] == [(one.contract, one.a, one.b) for one in found.contracts]


def test_a_run_without_contracts_is_not_held_against_one_with_them() -> None:
    found = contracts_of({}, {("sum", 0): FAIL})
    assert ((), 0) == (found.contracts, found.num_same_contracts)


# -------------------------------------------------------------------------------------------------------------- memory


def held(number: int, **peaks: int) -> JudgedRun:
    """A run whose compositions held so many bytes at their peaks."""
    rows = tuple(
        MemoryVerdict(
            composition=name,
            rank=0,
            bytes=1024,
            predicted_steady_bytes=0,
            predicted_peak_bytes=0,
            measured_steady_bytes=0,
            measured_peak_bytes=peak,
            outcome=PredictionOutcome.DIFFERS,
            readings=(),
            reasons=(),
        )
        for name, peak in peaks.items()
    )
    found = judged(number)
    return dataclasses.replace(found, verdict=dataclasses.replace(found.verdict, memory=rows))


def test_only_peaks_that_differ_are_listed() -> None:
    found = compare(held(1, all_reduce=1024, rs_ag_naive=2304), held(2, all_reduce=1024, rs_ag_naive=2560))
    [change] = found.memory
    assert ("rs_ag_naive", 2304, 2560) == (change.composition, change.a_peak_bytes, change.b_peak_bytes)
    assert 1 == found.num_same_memory


def test_a_composition_that_one_run_did_not_measure_is_not_held_against_it() -> None:
    found = compare(held(1, all_reduce=1024), held(2))
    assert ((), 0) == (found.memory, found.num_same_memory)


# --------------------------------------------------------------------------------------------------------- differences


def on(*, plan_changes: dict[str, object] | None = None, **rank: object) -> JudgedRun:
    """A second run, whose ranks are as in the first but for `rank`."""
    own = dataclasses.replace(saved_runs.plan(), **(plan_changes or {}))  # type: ignore[arg-type]
    ranks = [rank_info(number, **rank) for number in range(2)]
    return judged(2, plan_of_run=own, run_of_run=saved_runs.run(2, ranks=ranks))


def test_host_pid_start_seed_and_place_are_no_difference() -> None:
    environment = {
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_PORT": "29500",
        "SLURM_JOB_ID": "17",
        "NCCL_DEBUG_FILE": "/tmp/nccl.log",
    }
    other = on(plan_changes={"seed": 5, "deadline_s": 9.0}, host="elsewhere", pid=1, environment=environment)
    assert () == differences(judged(1), other)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (on(device="NVIDIA H200"), ("devices", "2 x x86_64", "2 x NVIDIA H200")),
        (on(versions={"python": "3.12.3", "torch": "2.13.0"}), ("version of python", "3.11.7", "3.12.3")),
        (on(environment={}), ("variable GLOO_SOCKET_IFNAME", "lo", "none")),
        (
            on(environment={"GLOO_SOCKET_IFNAME": "lo", "NCCL_ALGO": "Ring"}),
            ("variable NCCL_ALGO", "none", "Ring"),
        ),
        (
            on(environment={"GLOO_SOCKET_IFNAME": "lo", "LD_PRELOAD": "/opt/libnccl.so"}),
            ("variable LD_PRELOAD", "none", "/opt/libnccl.so"),
        ),
        (on(plan_changes={"backend": Backend.NCCL}), ("backend", "gloo", "nccl")),
        (on(plan_changes={"world_size": 4}), ("world size", "2", "4")),
    ],
)
def test_a_difference_is_named_with_both_values(other: JudgedRun, expected: tuple[str, str, str]) -> None:
    [found] = differences(judged(1), other)
    assert expected == (found.field, found.a, found.b)


def test_ranks_spread_over_more_hosts_are_a_difference() -> None:
    ranks = [rank_info(0, host="one"), rank_info(1, host="two")]
    [found] = differences(judged(1), judged(2, run_of_run=saved_runs.run(2, ranks=ranks)))
    assert ("ranks by host", "0 1", "0 | 1") == (found.field, found.a, found.b)


def test_a_variable_that_differs_between_ranks_is_given_in_their_order() -> None:
    ranks = [rank_info(rank, environment={"CUDA_VISIBLE_DEVICES": str(rank)}) for rank in range(2)]
    found = {one.field: one.b for one in differences(judged(1), judged(2, run_of_run=saved_runs.run(2, ranks=ranks)))}
    assert "0, 1" == found["variable CUDA_VISIBLE_DEVICES"]


def test_which_ranks_have_which_value_is_a_difference() -> None:
    def spread(number: int, *values: str) -> JudgedRun:
        ranks = [rank_info(rank, environment={"NCCL_CROSS_NIC": value}) for rank, value in enumerate(values)]
        return judged(number, run_of_run=saved_runs.run(number, ranks=ranks))

    [found] = differences(spread(1, "0", "0", "1"), spread(2, "0", "1", "1"))
    assert ("0, 0, 1", "0, 1, 1") == (found.a, found.b)


def test_of_cases_only_those_are_named_that_the_other_run_has_not() -> None:
    timing = saved_runs.timing_of(saved_runs.plan())
    more = dataclasses.replace(timing, cases=(dataclasses.replace(CASE, bytes=1_048_577), *timing.cases))
    [found] = differences(judged(1), on(plan_changes={"latency": more}))
    assert ("plan: cases", "no more", "1,048,577 B float32 sum cpu x1") == (found.field, found.a, found.b)


def test_arms_in_another_order_are_no_difference() -> None:
    timing = saved_runs.timing_of(saved_runs.plan())
    turned = dataclasses.replace(timing, arms=timing.arms[::-1])
    assert () == differences(judged(1), on(plan_changes={"latency": turned}))


def test_mixed_runs_are_refused_with_every_field_named() -> None:
    other = on(device="NVIDIA H200", versions={"python": "3.11.7", "torch": "2.11.0"})
    with pytest.raises(UsageError, match="--allow-mixed") as error:
        compare(judged(1), other)
    assert "run-1 vs run-2: devices: 2 x x86_64 vs 2 x NVIDIA H200 | version of torch: 2.13.0 vs 2.11.0" in str(
        error.value
    )


def test_mixed_runs_that_are_allowed_carry_their_differences() -> None:
    found = compare(judged(1, row(CANDIDATE)), on(device="NVIDIA H200"), allow_mixed=True)
    assert ["devices"] == [one.field for one in found.differences]


def test_a_run_is_not_compared_with_itself() -> None:
    one = judged(1)
    with pytest.raises(UsageError, match="both are the same run; got run-1 and copy"):
        compare(one, dataclasses.replace(one, directory="copy"))


def test_roles_are_kept_apart() -> None:
    again = dataclasses.replace(DIRECT, role=ArmRole.CONTROL)
    found = compare(judged(1, row(DIRECT), row(again)), judged(2, row(DIRECT), row(again))).rows
    assert [ArmRole.DIRECT, ArmRole.CONTROL] == [one.arm.role for one in found]
