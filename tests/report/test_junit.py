"""A verdict as JUnit XML: what fails, what is skipped, what is an error, and that it is XML whatever the words."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsag.collectives import Kind
from rsag.records.codec import load_document
from rsag.records.contracts import ContractOutcome, ContractRow
from rsag.records.latency import LatencyRow, PredictionOutcome, Reason, ReasonCode, TimeOutcome, WireVerdict
from rsag.records.memory import MemoryVerdict
from rsag.records.proof import Contract, ProofOutcome, ProofRow, Proofs, Refutation
from rsag.records.verdict import Verdict, VerdictOutcome
from rsag.reduction import ReduceOp
from rsag.report.junit import Breach, junit, latency_case
from saved_runs import AA_DIFFERS, CANDIDATE, CONTROL, DIRECT, row

TOO_FEW = Reason(code=ReasonCode.TOO_FEW_ROUNDS, message="12 rounds could have found 5 %")


def verdict(
    *latency: LatencyRow,
    contracts: Sequence[ContractRow] = (),
    wire: Sequence[WireVerdict] = (),
    outcome: VerdictOutcome = VerdictOutcome.PASS,
    reasons: Sequence[str] = (),
) -> Verdict:
    return Verdict(
        outcome=outcome,
        reasons=tuple(reasons),
        equivalence=(),
        contracts=tuple(contracts),
        latency=latency,
        wire=tuple(wire),
    )


def contract(outcome: ContractOutcome, *, reason: str = "", got: str = "[3]") -> ContractRow:
    return ContractRow(contract="exact-sum", rank=1, outcome=outcome, expected="[4]", got=got, reason=reason)


def wire(outcome: PredictionOutcome, *reasons: Reason) -> WireVerdict:
    return WireVerdict(
        composition="all_reduce",
        rank=2,
        bytes=1024,
        predicted_bytes=1536.0,
        measured_bytes=None if outcome is PredictionOutcome.CANNOT_TELL else 2304.0,
        outcome=outcome,
        reasons=reasons,
    )


def suite(name: str, found: Verdict, breaches: Sequence[Breach] = (), proofs: Proofs | None = None) -> ET.Element:
    """The test suite called `name` in the document."""
    [one] = [one for one in ET.fromstring(junit(found, breaches, proofs)) if one.get("name") == name]
    return one


def only_case(name: str, found: Verdict, breaches: Sequence[Breach] = (), proofs: Proofs | None = None) -> ET.Element:
    [case] = suite(name, found, breaches, proofs)
    return case


def status(case: ET.Element) -> str:
    """What the case is marked as: passed, failure, error or skipped."""
    return next((child.tag for child in case if child.tag != "system-out"), "passed")


def message(case: ET.Element) -> str | None:
    [child] = [child for child in case if child.tag != "system-out"]
    return child.get("message")


def out(case: ET.Element) -> str:
    return case.findtext("system-out") or ""


# --------------------------------------------------------------------------------------------------------------- suites


def test_each_experiment_with_rows_is_a_suite_behind_the_run() -> None:
    found = verdict(
        row(CANDIDATE, outcome=TimeOutcome.SLOWER),
        contracts=[contract(ContractOutcome.PASS)],
        wire=[wire(PredictionOutcome.AGREES)],
    )
    assert ["run", "contracts", "latency", "wire"] == [one.get("name") for one in ET.fromstring(junit(found, []))]


def test_a_suite_counts_its_cases() -> None:
    rows = [
        row(CANDIDATE, outcome=TimeOutcome.SLOWER),
        row(CANDIDATE, outcome=TimeOutcome.INCONCLUSIVE),
        row(CONTROL, outcome=TimeOutcome.INVALID),
    ]
    counts = suite("latency", verdict(*rows)).attrib
    assert {"name": "latency", "tests": "3", "failures": "0", "errors": "1", "skipped": "1"} == counts


def test_an_invalid_run_is_an_error_even_where_no_row_shows_it() -> None:
    case = only_case("run", verdict(outcome=VerdictOutcome.INVALID, reasons=["no records of rank 3"]))
    assert ("error", "no records of rank 3") == (status(case), message(case))


def test_a_failed_run_is_a_failure() -> None:
    assert "failure" == status(only_case("run", verdict(outcome=VerdictOutcome.FAIL, reasons=["x fails"])))


# ------------------------------------------------------------------------------------------------------------ contracts


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (ContractOutcome.PASS, "passed"),
        (ContractOutcome.FAIL, "failure"),
        (ContractOutcome.UNSUPPORTED, "skipped"),
    ],
)
def test_a_contract_on_a_rank_is_a_case(outcome: ContractOutcome, expected: str) -> None:
    case = only_case("contracts", verdict(contracts=[contract(outcome)]))
    assert ("rsag.contracts", "exact-sum on rank 1") == (case.get("classname"), case.get("name"))
    assert expected == status(case)


def test_a_failing_contract_says_what_was_expected_and_seen() -> None:
    case = only_case("contracts", verdict(contracts=[contract(ContractOutcome.FAIL, reason="element 0 is wrong")]))
    assert "element 0 is wrong" == message(case)
    assert "expected [4]\ngot [3]" == out(case)


def test_an_unsupported_contract_is_skipped_with_its_reason() -> None:
    case = only_case("contracts", verdict(contracts=[contract(ContractOutcome.UNSUPPORTED, reason="no AVG")]))
    assert "no AVG" == message(case)


# -------------------------------------------------------------------------------------------------------------- latency


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (TimeOutcome.FASTER, "passed"),
        (TimeOutcome.SLOWER, "passed"),
        (TimeOutcome.EQUIVALENT, "passed"),
        (TimeOutcome.INCONCLUSIVE, "skipped"),
        (TimeOutcome.INVALID, "error"),
    ],
)
def test_what_an_outcome_in_time_is_to_ci(outcome: TimeOutcome, expected: str) -> None:
    assert expected == status(only_case("latency", verdict(row(CANDIDATE, outcome=outcome))))


def test_the_numbers_of_a_row_are_in_its_output() -> None:
    found = row(CANDIDATE, 1.25, outcome=TimeOutcome.SLOWER, interval=(1.2, 1.3), median_us=87.65)
    case = only_case("latency", verdict(found))
    assert "rs_ag_in_place at 1 MiB float32 sum, cpu x1" == case.get("name")
    assert "1.250x slower [1.200, 1.300]; median 87.7 us; 3 rounds" == out(case)


def test_an_inconclusive_row_has_its_reason_and_no_ratio() -> None:
    case = only_case("latency", verdict(row(CANDIDATE, 1.04, outcome=TimeOutcome.INCONCLUSIVE, reasons=[TOO_FEW])))
    assert "too-few-rounds: 12 rounds could have found 5 %" == message(case)
    assert out(case).startswith("inconclusive; median")


def test_an_invalid_row_shows_no_interval() -> None:
    found = row(CANDIDATE, outcome=TimeOutcome.INVALID, interval=(1.2, 1.3), reasons=[AA_DIFFERS])
    assert "1.2" not in out(only_case("latency", verdict(found))).splitlines()[0]


def test_arms_of_which_nothing_is_asked_are_no_cases() -> None:
    assert ["run"] == [one.get("name") for one in ET.fromstring(junit(verdict(row(DIRECT)), []))]


# ------------------------------------------------------------------------------------------------------------- breaches


def breach(found: LatencyRow, words: str) -> Breach:
    return (*latency_case(found), words)


@pytest.mark.parametrize("outcome", [TimeOutcome.SLOWER, TimeOutcome.INCONCLUSIVE])
def test_a_breached_condition_is_a_failure_of_its_row(outcome: TimeOutcome) -> None:
    found = row(CANDIDATE, outcome=outcome)
    case = only_case("latency", verdict(found), [breach(found, "slower than 10 %")])
    assert ("failure", "slower than 10 %") == (status(case), message(case))


def test_all_conditions_that_a_row_breaches_are_named() -> None:
    found = row(CANDIDATE, outcome=TimeOutcome.SLOWER)
    case = only_case("latency", verdict(found), [breach(found, "one"), breach(found, "two")])
    assert "one; two" == message(case)


def test_an_invalid_row_stays_an_error_and_names_the_condition() -> None:
    found = row(CANDIDATE, outcome=TimeOutcome.INVALID, reasons=[AA_DIFFERS])
    case = only_case("latency", verdict(found), [breach(found, "an answer was asked for")])
    assert "error" == status(case)
    assert "an answer was asked for" in out(case)


def test_a_breach_of_no_row_is_not_lost() -> None:
    case = only_case("fail-on", verdict(), [("rsag.latency", "gone", "slower than 10 %")])
    assert ("gone", "failure", "slower than 10 %") == (case.get("name"), status(case), message(case))


# --------------------------------------------------------------------------------------------------- memory and kernels


def memory(outcome: PredictionOutcome, measured: int | None) -> MemoryVerdict:
    return MemoryVerdict(
        composition="rs_ag_naive",
        rank=1,
        bytes=1024,
        predicted_steady_bytes=1024,
        predicted_peak_bytes=2304,
        measured_steady_bytes=measured,
        measured_peak_bytes=measured,
        outcome=outcome,
        readings=(),
        reasons=(Reason(code=ReasonCode.UNEXPLAINED, message="256 B"),),
    )


def test_memory_that_differs_is_a_finding_and_no_failure() -> None:
    found = dataclasses.replace(verdict(), memory=(memory(PredictionOutcome.DIFFERS, 2560),))
    case = only_case("memory", found)
    assert ("passed", "rs_ag_naive at 1 KiB on rank 1") == (status(case), case.get("name"))
    assert "peak 2,304 B predicted, 2,560 B measured\nunexplained: 256 B" in out(case)


def test_memory_that_was_not_measured_is_skipped() -> None:
    found = dataclasses.replace(verdict(), memory=(memory(PredictionOutcome.CANNOT_TELL, None),))
    assert "skipped" == status(only_case("memory", found))


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (PredictionOutcome.AGREES, "passed"),
        (PredictionOutcome.DIFFERS, "passed"),
        (PredictionOutcome.CANNOT_TELL, "skipped"),
    ],
)
def test_a_range_of_a_probe_is_a_case(outcome: PredictionOutcome, expected: str) -> None:
    kept = Path(__file__).parents[2] / "benchmarks" / "results" / "kernels_h200x2_20261201" / "verdict.json"
    probe = dataclasses.replace(load_document(Verdict, kept).kernels[0], outcome=outcome)
    cases = suite("kernels", dataclasses.replace(verdict(), kernels=(probe,))).findall("testcase")
    assert [expected] * 4 == [status(case) for case in cases]
    assert {"direct", "decomposed"} == {(case.get("name") or "").split()[0] for case in cases}


# ------------------------------------------------------------------------------------------------------- wire and proof


def test_bytes_that_differ_are_a_finding_and_no_failure() -> None:
    known = Reason(code=ReasonCode.GLOO_REDUCE_SCATTER, message="a whole AllReduce")
    case = only_case("wire", verdict(wire=[wire(PredictionOutcome.DIFFERS, known)]))
    assert ("passed", "all_reduce at 1 KiB on rank 2") == (status(case), case.get("name"))
    assert "differs: predicted 1,536 B, counted 2,304 B per call\ngloo-reduce-scatter: a whole AllReduce" == out(case)


def test_a_wire_that_cannot_tell_is_skipped() -> None:
    none = Reason(code=ReasonCode.NOT_MEASURED, message="no counter")
    case = only_case("wire", verdict(wire=[wire(PredictionOutcome.CANNOT_TELL, none)]))
    assert ("skipped", "not-measured: no counter") == (status(case), message(case))
    assert "counted nothing" in out(case)


def proofs(result: ProofOutcome, refutation: Refutation | None = None) -> Proofs:
    proved = ProofRow(
        composition="rs_ag_in_place",
        target=Kind.ALL_REDUCE,
        op=ReduceOp.SUM,
        num_worlds=8,
        num_not_claimed=0,
        result=result,
        shard=ProofOutcome.NOT_CLAIMED,
        result_refutation=refutation,
        not_claimed="no such size" if result is ProofOutcome.NOT_CLAIMED else None,
    )
    return Proofs(world_sizes=(2,), numels="N", ops=(), num_worlds=8, seconds=0.1, scope="", rows=(proved,))


def test_a_refuted_composition_is_a_failure_with_its_counterexample() -> None:
    wrong = Refutation(contract=Contract.RESULT, message="missing x[1][0]", world_size=2, numel=4, op=ReduceOp.SUM)
    case = only_case("proof", verdict(), proofs=proofs(ProofOutcome.REFUTED, wrong))
    assert ("failure", "N=2, M=4: missing x[1][0]") == (status(case), message(case))


@pytest.mark.parametrize(
    ("result", "expected"), [(ProofOutcome.PROVED, "passed"), (ProofOutcome.NOT_CLAIMED, "skipped")]
)
def test_what_a_proof_is_to_ci(result: ProofOutcome, expected: str) -> None:
    assert expected == status(only_case("proof", verdict(), proofs=proofs(result)))


# ------------------------------------------------------------------------------------------------------------------ XML


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_any_words_make_valid_xml(words: str) -> None:
    found = verdict(
        contracts=[contract(ContractOutcome.FAIL, reason=words, got=words)],
        outcome=VerdictOutcome.FAIL,
        reasons=[words],
    )
    text = junit(found, [(words, words, words)]).encode("utf-8")
    assert 3 == len(ET.fromstring(text))


def test_what_xml_cannot_hold_can_still_be_read() -> None:
    hostile = '\x1b[31m"<&>]]>\x00\ud800\uffff\n\ttab'
    case = only_case("contracts", verdict(contracts=[contract(ContractOutcome.FAIL, reason=hostile)]))
    assert '\\x1b[31m"<&>]]>\\x00\\ud800\\uffff\n\ttab' == message(case)


def test_the_document_says_its_encoding() -> None:
    assert junit(verdict(), []).startswith('<?xml version="1.0" encoding="utf-8"?>\n<testsuites')
