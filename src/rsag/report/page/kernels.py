"""Calls of a run: what each composition is predicted to issue, beside what was seen to run."""

from __future__ import annotations

from dataclasses import dataclass

from rsag.records.plan import Plan
from rsag.records.rundir import PLAN
from rsag.report.page.figures import Figure, counted


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLine:
    """One composition on rank 0: its calls by kind."""

    composition: str
    predicted: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelsView:
    calls: tuple[CallLine, ...]


def view_kernels(plan: Plan | None) -> KernelsView:
    predictions = () if plan is None else plan.predictions
    return KernelsView(
        calls=tuple(
            CallLine(
                composition=one.composition,
                predicted=counted(
                    ", ".join(f"{count} {kind}" for kind, count in one.calls.items()),
                    f"{PLAN}: predictions[{index}].calls.*",
                ),
            )
            for index, one in enumerate(predictions)
            if one.rank == 0
        )
    )
