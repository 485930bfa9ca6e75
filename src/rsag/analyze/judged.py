"""Whole runs as values, for what looks at several of them: plan, circumstances and verdict, arm by arm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rsag.analyze.verdict import judge
from rsag.records.codec import load_document
from rsag.records.latency import Buffers, Case, LatencyRow, TimedArm
from rsag.records.plan import Plan
from rsag.records.run import Run
from rsag.records.rundir import PLAN, RUN, require_run_directory
from rsag.records.source import RunSource
from rsag.records.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRun:
    """One run; `directory` is the name it goes by in messages and tables."""

    directory: str
    plan: Plan
    run: Run
    verdict: Verdict

    @property
    def source(self) -> RunSource:
        return RunSource(
            directory=self.directory,
            started_utc=self.run.started_utc,
            seed=self.plan.seed,
            outcome=self.run.outcome,
            verdict=self.verdict.outcome,
        )


def read_judged(directory: Path) -> JudgedRun:
    """The run in `directory`, judged from its records by this release, so that all runs are judged alike.

    Nothing is written. Raises RecordError for a file that cannot be read, UsageError where there is no run.
    """
    require_run_directory(directory)
    return JudgedRun(
        directory=str(directory),
        plan=load_document(Plan, directory / PLAN),
        run=load_document(Run, directory / RUN),
        verdict=judge(directory),
    )


class ArmKey(NamedTuple):
    """What makes rows of several runs the same question; `nth` counts a case that the plan has more than once."""

    case: Case
    nth: int
    role: str
    composition: str
    buffers: Buffers
    settings: tuple[tuple[str, str], ...]


def by_arm(rows: Iterable[LatencyRow]) -> dict[ArmKey, LatencyRow]:
    """The rows by what they answer, in their order."""
    seen: Counter[ArmKey] = Counter()
    found = {}
    for row in rows:
        settings = tuple(sorted(row.settings.items()))
        first = ArmKey(case_of(row), 0, row.role.value, row.composition, row.buffers, settings)
        found[first._replace(nth=seen[first])] = row
        seen[first] += 1
    return found


def case_of(row: LatencyRow) -> Case:
    return Case(bytes=row.bytes, dtype=row.dtype, op=row.op, clock=row.clock, calls=row.calls)


def arm_of(row: LatencyRow) -> TimedArm:
    return TimedArm(role=row.role, composition=row.composition, buffers=row.buffers, settings=row.settings)
