"""A verdict as JUnit XML, for the CI systems that read nothing else."""

from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from rsag.records.contracts import ContractOutcome, ContractRow
from rsag.records.kernels import ProbeVerdict, RangeRow, in_words
from rsag.records.latency import LatencyRow, PredictionOutcome, TimeOutcome, WireVerdict
from rsag.records.memory import MemoryVerdict
from rsag.records.proof import ProofOutcome, ProofRow, Proofs
from rsag.records.verdict import Verdict, VerdictOutcome
from rsag.report.answers import answer
from rsag.report.names import arm_name, case_name, wire_name
from rsag.report.proofs import describe
from rsag.units import format_bytes

Breach = tuple[str, str, str]
"""Class name and name of a test case, as `latency_case` gives them, and what condition it does not keep."""


class _Status(str, Enum):
    """The children that a test case may have; each is the name of its element."""

    PASSED = ""
    SKIPPED = "skipped"
    FAILURE = "failure"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    classname: str
    name: str
    status: _Status = _Status.PASSED
    message: str = ""
    out: str = ""


def junit(verdict: Verdict, breaches: Sequence[Breach], proofs: Proofs | None = None) -> str:
    """The XML document: a test suite per experiment with rows, one for the run as a whole, and no times of tests.

    Slower or faster is no failure, and neither are bytes or kernels that differ from the prediction: a failure is what
    ends `rsag run` with an exit code other than 0, or one of `breaches`. Invalid is an error; what is inconclusive,
    unsupported or not told is skipped with its reason. Arms of which nothing is asked have no test case. A breach of a
    case that is not here has a suite of its own. Characters that XML cannot hold are written as escapes.
    """
    suites = {
        "run": [_run(verdict)],
        "proof": [] if proofs is None else list(map(_proof, proofs.rows)),
        "contracts": list(map(_contract, verdict.contracts)),
        "latency": [_latency(row) for row in verdict.latency if row.outcome is not None],
        "wire": list(map(_wire, verdict.wire)),
        "memory": list(map(_memory, verdict.memory)),
        "kernels": [_kernels(probe, row) for probe in verdict.kernels for row in probe.ranges],
    }
    known = {(case.classname, case.name) for cases in suites.values() for case in cases}
    broken: dict[tuple[str, str], list[str]] = {}
    for classname, name, message in breaches:
        broken.setdefault((classname, name), []).append(message)
    suites["fail-on"] = [_Case(classname=key[0], name=key[1]) for key in broken if key not in known]
    root = ET.Element("testsuites", name="rsag")
    for suite, cases in suites.items():
        if cases:
            _add_suite(root, suite, [_breached(case, broken.get((case.classname, case.name), [])) for case in cases])
    ET.indent(root, " ")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def latency_case(row: LatencyRow) -> tuple[str, str]:
    """Class name and name of the test case of `row`."""
    return "rsag.latency", f"{arm_name(row)} at {case_name(row)}"


# ---------------------------------------------------------------------------------------------------- one case per row


def _run(verdict: Verdict) -> _Case:
    """What no row shows, such as a rank without records, makes the run fail here."""
    status = {VerdictOutcome.FAIL: _Status.FAILURE, VerdictOutcome.INVALID: _Status.ERROR}
    return _Case(
        classname="rsag.run",
        name="verdict",
        status=status.get(verdict.outcome, _Status.PASSED),
        message="; ".join(verdict.reasons),
        out=verdict.sentence,
    )


def _proof(row: ProofRow) -> _Case:
    refutations = [one for one in (row.result_refutation, row.shard_refutation) if one is not None]
    status, message = _Status.PASSED, ""
    if ProofOutcome.REFUTED in (row.result, row.shard):
        status, message = _Status.FAILURE, "; ".join(map(describe, refutations)) or "refuted"
    elif row.result is ProofOutcome.NOT_CLAIMED:
        status, message = _Status.SKIPPED, row.not_claimed or "not claimed"
    return _Case(
        classname="rsag.proof",
        name=f"{row.composition} under {row.op.value}",
        status=status,
        message=message,
        out=f"{row.num_worlds} worlds; full result {row.result.value}, shard {row.shard.value}",
    )


def _contract(row: ContractRow) -> _Case:
    status = {ContractOutcome.FAIL: _Status.FAILURE, ContractOutcome.UNSUPPORTED: _Status.SKIPPED}
    return _Case(
        classname="rsag.contracts",
        name=f"{row.contract} on rank {row.rank}",
        status=status.get(row.outcome, _Status.PASSED),
        message=row.reason or row.outcome.value,
        out=f"expected {row.expected}\ngot {row.got}",
    )


def _latency(row: LatencyRow) -> _Case:
    assert row.outcome is not None
    classname, name = latency_case(row)
    status = {TimeOutcome.INVALID: _Status.ERROR, TimeOutcome.INCONCLUSIVE: _Status.SKIPPED}
    reasons = [f"{reason.code.value}: {reason.message}" for reason in row.reasons]
    found = answer(row.outcome, row.ratio, row.interval).plain
    median = "no median" if row.median_us is None else f"median {row.median_us:.1f} us"
    return _Case(
        classname=classname,
        name=name,
        status=status.get(row.outcome, _Status.PASSED),
        message=reasons[0] if reasons else row.outcome.value,
        out="\n".join([f"{found}; {median}; {row.rounds} rounds", *reasons]),
    )


def _wire(row: WireVerdict) -> _Case:
    reasons = [f"{reason.code.value}: {reason.message}" for reason in row.reasons]
    counts = [
        f"{name} {'nothing' if count is None else f'{count:,.0f} B'}"
        for name, count in (("predicted", row.predicted_bytes), ("counted", row.measured_bytes))
    ]
    return _Case(
        classname="rsag.wire",
        name=f"{wire_name(row)} at {format_bytes(row.bytes)} on rank {row.rank}",
        status=_Status.SKIPPED if row.outcome is PredictionOutcome.CANNOT_TELL else _Status.PASSED,
        message=reasons[0] if reasons else row.outcome.value,
        out="\n".join([f"{row.outcome.value}: {', '.join(counts)} per call", *reasons]),
    )


def _memory(row: MemoryVerdict) -> _Case:
    reasons = [f"{reason.code.value}: {reason.message}" for reason in row.reasons]
    held = [
        f"{name} {_bytes(predicted)} predicted, {_bytes(measured)} measured"
        for name, predicted, measured in (
            ("steady", row.predicted_steady_bytes, row.measured_steady_bytes),
            ("peak", row.predicted_peak_bytes, row.measured_peak_bytes),
        )
    ]
    return _Case(
        classname="rsag.memory",
        name=f"{row.composition} at {format_bytes(row.bytes)} on rank {row.rank}",
        status=_Status.SKIPPED if row.outcome is PredictionOutcome.CANNOT_TELL else _Status.PASSED,
        message=reasons[0] if reasons else row.outcome.value,
        out="\n".join([f"{row.outcome.value}: {'; '.join(held)}", *reasons]),
    )


def _bytes(count: int | None) -> str:
    return "nothing" if count is None else f"{count:,} B"


def _kernels(probe: ProbeVerdict, row: RangeRow) -> _Case:
    where = f"source {row.source}" if row.device is None else f"source {row.source}, device {row.device}"
    reasons = [f"{reason.code.value}: {reason.message}" for reason in row.reasons]
    return _Case(
        classname="rsag.kernels",
        name=f"{row.range} by {probe.probe.value}, {where}",
        status=_Status.SKIPPED if probe.outcome is PredictionOutcome.CANNOT_TELL else _Status.PASSED,
        message=probe.reasons[0] if probe.reasons else probe.outcome.value,
        out="\n".join([f"{row.structure.value}: {in_words(row.ran)}", *probe.reasons, *reasons]),
    )


def _breached(case: _Case, messages: Sequence[str]) -> _Case:
    """`case` as a failure of the conditions in `messages`; an error stays one, since there is no answer to judge."""
    if not messages:
        return case
    if case.status is _Status.ERROR:
        return dataclasses.replace(case, out="\n".join([case.out, *messages]))
    return dataclasses.replace(case, status=_Status.FAILURE, message="; ".join(messages))


# ----------------------------------------------------------------------------------------------------------------- XML


def _add_suite(root: ET.Element, title: str, cases: Sequence[_Case]) -> None:
    plurals = {"failures": _Status.FAILURE, "errors": _Status.ERROR, "skipped": _Status.SKIPPED}
    counts = {name: str(sum(case.status is status for case in cases)) for name, status in plurals.items()}
    suite = ET.SubElement(root, "testsuite", {"name": title, "tests": str(len(cases)), **counts})
    for case in cases:
        element = ET.SubElement(suite, "testcase", classname=_valid(case.classname), name=_valid(case.name))
        if case.status is not _Status.PASSED:
            message = _valid(case.message)
            ET.SubElement(
                element, case.status.value, message=message
            ).text = message  # some show the one, some the other
        if case.out:
            ET.SubElement(element, "system-out").text = _valid(case.out)


_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _valid(text: str) -> str:
    """`text` with the characters that XML 1.0 has no way to write (section 2.2) as escapes that can be read."""
    return _NOT_XML.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)
