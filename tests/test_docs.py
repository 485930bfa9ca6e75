"""The documentation says what the code does: generated pages are current, links lead somewhere, quotes are real."""

from __future__ import annotations

import dataclasses
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from rsag.compositions.mutants import MUTANTS
from rsag.programs import Alloc, Local, Program, Release, Start, Wait
from rsag.proofs.mutation import score
from rsag.records import (
    capability,
    compare,
    contracts,
    execution,
    kernels,
    latency,
    memory,
    merge,
    plan,
    proof,
    protocol,
    run,
    source,
    verdict,
)
from rsag.records.latency import ReasonCode
from rsag.records.proof import Contract
from rsag.traces.events import LimitCode

ROOT = Path(__file__).parents[1]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])

RECORDS = [
    *(plan.Plan, plan.Arm, plan.Prediction, plan.ContractsPlan, latency.LatencyPlan, latency.Case, latency.TimedArm),
    *(Program, Alloc, Release, Local, Start, Wait),
    *(proof.Proofs, proof.ProofRow, proof.Refutation),
    *(capability.Capabilities, capability.Capability),
    *(run.RankInfo, run.Run, contracts.Observation),
    *(latency.RoundRow, latency.LookRow, latency.CaseEnd, latency.WireRow, protocol.ProtocolRow, protocol.Choice),
    *(verdict.Verdict, verdict.Equivalence, contracts.ContractRow),
    *(latency.LatencyRow, latency.PredictedCost, latency.Reason, latency.WireVerdict),
    *(memory.MemoryPlan, memory.MemoryArm, memory.PredictedMemory, memory.PredictedMoment),
    *(memory.MemoryRow, memory.MemoryReading, memory.MemoryMoment, memory.MemoryVerdict),
    *(source.RunSource, merge.Merge, merge.MergeRow, merge.LaunchRow),
    *(compare.Comparison, compare.Difference, compare.CompareRow, compare.Side, compare.ContractChange),
    *(compare.MemoryChange, protocol.Protocols, kernels.ProbeVerdict),
    *(execution.KernelsPlan, execution.MarkedArm, execution.ExecutionRow, execution.Counted),
    *(execution.NativeProbe, execution.NativeArm, execution.BoundaryRow, execution.LoggedCount),
]

KERNELS = [
    *(kernels.KernelsDocument, kernels.RangeRow, kernels.DeviceRow, kernels.KernelRow, kernels.Claim),
    *(kernels.SourceRow, kernels.CallRow, kernels.ChoiceRow, kernels.LimitRow, kernels.AgreementRow),
    *(kernels.TransferRow, kernels.QuarantineRows, kernels.SkippedRow, kernels.KernelReason, protocol.Choice),
]

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_reference", ROOT / "docs" / "generate_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_generated_reference_is_what_the_code_says_now() -> None:
    pages = generator().pages()

    assert pages == {path: path.read_text() for path in pages}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_to_a_file_and_a_heading_that_exist(page: Path) -> None:
    dead = []
    for link in _LINK.findall(_FENCE.sub("", page.read_text())):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if "://" not in link and (not target.exists() or (anchor and anchor not in anchors(target))):
            dead.append(link)

    assert dead == []


@pytest.mark.parametrize("contract", list(Contract), ids=lambda contract: contract.value)
def test_the_refutation_shown_for_each_contract_is_one_that_is_really_made(contract: Contract) -> None:
    page = (ROOT / "docs" / "howto" / "read-a-refutation.md").read_text()
    shown = [
        row.mutant
        for row in score(MUTANTS).rows
        if row.refutation is not None and row.breaks is contract and row.refutation.message in page
    ]

    assert shown != []


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_the_run_directory_s_page_names_every_key_of_every_record(record: type) -> None:
    page = (ROOT / "docs" / "reference" / "run-directory.md").read_text()
    quoted = set(re.findall(r"`(\w+)", page))

    assert set() == {field.name for field in dataclasses.fields(record)} - quoted


@pytest.mark.parametrize("record", KERNELS, ids=lambda record: record.__name__)
def test_the_page_of_kernels_names_every_key_of_every_record(record: type) -> None:
    page = (ROOT / "docs" / "reference" / "kernels.md").read_text()
    quoted = set(re.findall(r"`(\w+)", page))

    assert set() == {field.name for field in dataclasses.fields(record)} - quoted


def test_the_page_of_reasons_has_every_code_and_no_other() -> None:
    page = (ROOT / "docs" / "reference" / "reasons.md").read_text()

    codes = {code.value for code in (*ReasonCode, *kernels.KernelReasonCode, *LimitCode)}

    assert codes == set(re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE))
