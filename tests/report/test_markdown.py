"""A verdict as a comment: what it says, and that nothing in it acts as markup."""

from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from page_runs import LATENCY
from rsag.records.codec import load_document
from rsag.records.contracts import ContractOutcome, ContractRow
from rsag.records.latency import Reason, ReasonCode, TimeOutcome
from rsag.records.verdict import Equivalence, Holds, Meaning, Verdict, VerdictOutcome
from rsag.report.markdown import MOST_ROWS, code, markdown
from saved_runs import CANDIDATE, CONTROL, DIRECT, row


def verdict(**changed: object) -> Verdict:
    whole = Verdict(outcome=VerdictOutcome.PASS, reasons=(), equivalence=(), contracts=())
    return dataclasses.replace(whole, **changed)  # type: ignore[arg-type]


def test_the_four_meanings_are_marked() -> None:
    rows = [
        Equivalence(meaning=meaning, holds=holds, evidence="seen", conditions="")
        for meaning, holds in zip(Meaning, (Holds.YES, Holds.NO, Holds.CANNOT_TELL, Holds.NO))
    ]
    lines = markdown(verdict(equivalence=tuple(rows)), name="run").splitlines()

    assert [
        "| result | = yes | `seen` |",
        "| steps | ≠ no | `seen` |",
        "| execution | ? cannot-tell | `seen` |",
        "| state | ≠ no | `seen` |",
    ] == [line for line in lines if "seen" in line]


def test_a_ratio_stands_with_its_interval_and_a_refused_one_with_its_reason_alone() -> None:
    slower = row(CANDIDATE, 1.5, outcome=TimeOutcome.SLOWER, interval=(1.4, 1.6))
    too_few = Reason(code=ReasonCode.TOO_FEW_ROUNDS, message="more rounds")
    refused = row(CONTROL, outcome=TimeOutcome.INCONCLUSIVE, interval=(0.9, 1.1), reasons=[too_few])
    lines = markdown(verdict(latency=(row(DIRECT), slower, refused)), name="run").splitlines()[-2:]

    assert lines[0].endswith("| `rs_ag_in_place` | 100.0 | – | – | 1.500x slower [1.400, 1.600] |")
    assert lines[1].endswith("| `all_reduce (again)` | 100.0 | – | – | inconclusive: too-few-rounds |")


def test_a_contract_that_fails_is_named_with_its_rank() -> None:
    failed = ContractRow(
        contract="exact-sum", rank=3, outcome=ContractOutcome.FAIL, expected="", got="", reason="element 2 is 0"
    )

    assert "- `exact-sum`, rank 3: `element 2 is 0`" in markdown(verdict(contracts=(failed,)), name="run")


def test_a_large_run_stays_a_comment() -> None:
    rows = (row(DIRECT), *[row(CANDIDATE, 1.5, outcome=TimeOutcome.SLOWER, interval=(1.4, 1.6))] * 500)
    text = markdown(verdict(latency=rows), name="run")

    assert f"... and {500 - MOST_ROWS} more in verdict.json" in text
    assert len(text) < 10_000


def test_a_kept_run_has_a_line_for_every_comparison() -> None:
    found = load_document(Verdict, LATENCY / "verdict.json")
    compared = [one for one in found.latency if one.role.is_compared]

    assert len(compared) == markdown(found, name="run").count("float32 sum,")


FORGED = (
    *("https://evil.example", "www.evil.example", "GH-12", "#12", ":tada:", "@name", "a@evil.example", "owner/name#3"),
    *("[a](//evil.example)", "![a](//evil.example)", "<img src=//evil.example>", "**a**", "$`a`$", "a | b", "``"),
)
"""What a forge makes a link, a mention, an issue, a picture or a letter of another kind of."""


@pytest.mark.parametrize("text", FORGED)
def test_what_records_say_stands_in_code_spans_alone(text: str) -> None:
    said = f"said {text}"
    rows = [Equivalence(meaning=meaning, holds=Holds.YES, evidence=said, conditions=said) for meaning in Meaning]
    failed = ContractRow(contract=said, rank=0, outcome=ContractOutcome.FAIL, expected=said, got=said, reason=said)
    timed = row(dataclasses.replace(CANDIDATE, composition=said), outcome=TimeOutcome.INCONCLUSIVE)
    whole = verdict(
        reasons=(said,), sentence=said, equivalence=tuple(rows), contracts=(failed,), latency=(row(DIRECT), timed)
    )
    lines = markdown(whole, name=said).splitlines()

    assert 10 == sum(line.count("`said ") for line in lines)
    assert [] == [line for line in lines if "said" in re.sub("`[^`]*`", "", line)]


@given(st.text(st.characters(codec=None)))
def test_any_text_is_one_span_on_one_line_of_one_cell(text: str) -> None:
    shown = code(text)

    assert shown == "" or re.fullmatch(r"`[^`|]+`", shown)
    assert shown.isprintable()
