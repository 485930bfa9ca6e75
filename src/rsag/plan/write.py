"""The first files of a run directory."""

from __future__ import annotations

from pathlib import Path

from rsag.compositions import find
from rsag.programs import Composition, Program, record
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
    programs = [program for arm in plan.arms for program in _record_few(find(arm.composition), plan.world_size)]
    dump_programs(tuple(programs), directory / PROGRAMS)


def _record_few(composition: Composition, world_size: int) -> list[Program]:
    """The programs at about the chapter's size: the next one that the composition takes."""
    multiple = composition.multiple_of(world_size)
    numel = -(-PROGRAM_ROWS * world_size // multiple) * multiple
    return [
        record(composition, rank=rank, world_size=world_size, numel=numel, op=ReduceOp.SUM)
        for rank in range(min(world_size, MOST_RANKS))
    ]
