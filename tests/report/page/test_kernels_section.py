"""Kernels and calls on the page: what the verdict says of the marked ranges, ranks that came out alike together."""

from __future__ import annotations

import dataclasses

from page_runs import KERNELS, LATENCY
from rsag.records.codec import load_document
from rsag.records.execution import Probe
from rsag.records.kernels import Structure
from rsag.records.plan import Plan
from rsag.records.verdict import Verdict
from rsag.report.page.files import read_files
from rsag.report.page.headline import view_claims
from rsag.report.page.kernels import view_kernels
from rsag.report.page.words import load_words

PLAN = load_document(Plan, KERNELS / "plan.json")
VERDICT = load_document(Verdict, KERNELS / "verdict.json")


def test_gpus_that_ran_alike_share_a_line() -> None:
    assert [
        (Probe.RANKS, "direct", "GPU 0, 1", "5 all_reduce", True),
        (Probe.RANKS, "decomposed", "GPU 0, 1", "5 reduce_scatter + 5 all_gather", True),
        (Probe.NATIVE, "direct", "GPU 0, 1", "5 all_reduce", True),
        (Probe.NATIVE, "decomposed", "GPU 0, 1", "5 reduce_scatter + 5 all_gather", True),
    ] == [
        (line.probe, line.range, line.where, line.ran.text, line.as_predicted)
        for line in view_kernels(PLAN, VERDICT).ranges
    ]


def test_a_gpu_that_ran_something_else_stands_alone_and_is_said_to_differ() -> None:
    ranks, native = VERDICT.kernels
    other = dataclasses.replace(ranks.ranges[0], collectives={"broadcast": 5}, structure=Structure.SEVERAL)
    changed = dataclasses.replace(ranks, ranges=(other, *ranks.ranges[1:]))
    lines = view_kernels(PLAN, dataclasses.replace(VERDICT, kernels=(changed, native))).ranges

    assert ("GPU 0", "5 broadcast", "several", False) == (
        lines[0].where,
        lines[0].ran.text,
        lines[0].structure.text,
        lines[0].as_predicted,
    )


def test_every_boundary_has_a_line_for_each_probe() -> None:
    shown = [(line.probe, line.quantity) for line in view_kernels(PLAN, VERDICT).boundaries]

    assert list(dict.fromkeys((row.probe, row.quantity) for row in VERDICT.boundaries)) == shown


def test_every_kernel_name_is_listed_with_what_it_cannot_say() -> None:
    kernels = [kernel for probe in VERDICT.kernels for row in probe.ranges for kernel in row.kernels]
    lines = view_kernels(PLAN, VERDICT).kernels

    assert {kernel.name for kernel in kernels} == {line.name for line in lines}
    assert sum(kernel.count for kernel in kernels) == sum(int(line.count.text) for line in lines)
    assert all("algorithm: " in line.cannot_say for line in lines)


def test_the_claims_set_what_ran_beside_what_should() -> None:
    claims = [claim for claim in view_claims(read_files(KERNELS), load_words()) if claim.quantity == "kernels"]

    assert [("5 all_reduce", "0"), ("5 reduce_scatter + 5 all_gather", "0")] == [
        (str(claim.measured), str(claim.residual)) for claim in claims
    ]


def test_without_captures_the_section_is_empty_but_for_predicted_calls() -> None:
    view = view_kernels(load_document(Plan, LATENCY / "plan.json"), load_document(Verdict, LATENCY / "verdict.json"))

    assert ((), (), ()) == (view.ranges, view.boundaries, view.kernels)
    assert view.calls != ()
