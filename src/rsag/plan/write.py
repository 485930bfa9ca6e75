"""The first files of a run directory."""

from __future__ import annotations

from pathlib import Path

from rsag.compositions import find
from rsag.programs import record
from rsag.programs.document import dump_programs
from rsag.records.codec import dump_document
from rsag.records.plan import Plan
from rsag.records.rundir import PLAN, PROGRAMS
from rsag.reduction import ReduceOp

MOST_RANKS = 16
PROGRAM_ROWS = 5
"""Programs are recorded at so many elements per rank: small enough to be read, as in the chapter."""


def write_plan(plan: Plan, directory: Path) -> None:
    """plan.json, and in programs.json the programs of every arm: of all ranks, or of the first few of very many."""
    dump_document(plan, directory / PLAN)
    numel = PROGRAM_ROWS * plan.world_size
    programs = [
        program
        for arm in plan.arms
        for program in (
            record(find(arm.composition), rank=rank, world_size=plan.world_size, numel=numel, op=ReduceOp.SUM)
            for rank in range(min(plan.world_size, MOST_RANKS))
        )
    ]
    dump_programs(tuple(programs), directory / PROGRAMS)
