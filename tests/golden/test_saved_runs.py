"""The run directories that the project keeps, judged again without their GPUs, say what they said."""

from __future__ import annotations

from pathlib import Path

import pytest

from rsag.analyze.judged import read_judged
from rsag.analyze.merge import merge
from rsag.analyze.verdict import judge
from rsag.records.codec import load_document
from rsag.records.merge import Merge
from rsag.records.rundir import PLAN, VERDICT
from rsag.records.verdict import Verdict

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
RUNS = sorted(plan.parent for plan in RESULTS.rglob(PLAN))
MERGED = sorted(RESULTS.rglob("merge.json"))


@pytest.mark.parametrize("run", RUNS, ids=lambda run: str(run.relative_to(RESULTS)))
def test_a_kept_run_is_judged_as_it_was(run: Path) -> None:
    assert load_document(Verdict, run / VERDICT) == judge(run)


def claims(merged: Merge) -> list[object]:
    """All that is claimed, without where the launches lay."""
    return [
        merged.sentence,
        *((row.case, row.arm, row.outcome, row.ratio, row.interval, row.adjusted_p) for row in merged.rows),
    ]


@pytest.mark.parametrize("saved", MERGED, ids=lambda saved: saved.parent.name)
def test_kept_launches_merge_to_what_they_did(saved: Path) -> None:
    launches = [read_judged(plan.parent) for plan in sorted(saved.parent.glob(f"*/{PLAN}"))]

    assert claims(load_document(Merge, saved)) == claims(merge(launches))


def test_there_are_kept_runs() -> None:
    assert RUNS
    assert MERGED
