"""The first files of a run directory."""

from __future__ import annotations

from pathlib import Path

from rsag.compositions import find
from rsag.programs import record_all
from rsag.programs.document import dump_programs
from rsag.records.codec import dump_document
from rsag.records.plan import Plan
from rsag.records.rundir import PLAN, PROGRAMS
from rsag.reduction import ReduceOp

PROGRAM_ROWS = 5
"""Programs are recorded at so many elements per rank: small enough to be read, as in the chapter."""


def write_plan(plan: Plan, directory: Path) -> None:
    """plan.json, and in programs.json every rank's program of every arm."""
    dump_document(plan, directory / PLAN)
    numel = PROGRAM_ROWS * plan.world_size
    programs = [
        program
        for arm in plan.arms
        for program in record_all(find(arm.composition), world_size=plan.world_size, numel=numel, op=ReduceOp.SUM)
    ]
    dump_programs(tuple(programs), directory / PROGRAMS)
