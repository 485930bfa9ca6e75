"""The rank files of a run, read as rows: those of one launch of this plan and of no other, and within its lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rsag.errors import RecordError
from rsag.records.codec import decode
from rsag.records.contracts import Observation
from rsag.records.execution import ExecutionRow
from rsag.records.jsonl import RankFile, read_rows
from rsag.records.latency import CaseEnd, LookRow, RoundRow, WireRow
from rsag.records.memory import MemoryRow
from rsag.records.plan import Plan
from rsag.records.run import LaunchMark, RankInfo
from rsag.records.rundir import rank_files

RecordedRow = LaunchMark | Observation | ExecutionRow | RoundRow | LookRow | CaseEnd | WireRow | MemoryRow

_KINDS: dict[str, type[RecordedRow]] = {
    "launch": LaunchMark,
    "observation": Observation,
    "round": RoundRow,
    "look": LookRow,
    "case-end": CaseEnd,
    "wire": WireRow,
    "memory": MemoryRow,
    "execution": ExecutionRow,
}

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What one rank left: its rows, and in `problems` what is missing from a rank that ended well."""

    rows: tuple[RecordedRow, ...]
    problems: tuple[str, ...]

    def of(self, kind: type[R]) -> list[R]:
        """The rows of one kind, in their order."""
        return [row for row in self.rows if isinstance(row, kind)]


def read_recorded(plan: Plan, directory: Path) -> dict[int, Recorded]:
    """By rank, what was recorded in `directory`.

    Raises RecordError, naming file and line, for what cannot be read, what is of another plan, rank or launch, and for
    a row about a case or an arm that the plan does not have.
    """
    ranks: dict[int, Recorded] = {}
    launches: dict[str, Path] = {}
    for rank, path in rank_files(directory):
        file = read_rows(path)
        _require_place(plan, rank, file)
        ranks[rank] = recorded = Recorded(rows=tuple(_rows(plan, file)), problems=file.problems)
        for launch in _launches(recorded):
            launches.setdefault(launch, path)
    if len(launches) > 1:
        raise RecordError(
            f"{directory}: rank files of {len(launches)} launches",
            got=", ".join(f"{path.name} of {launch}" for launch, path in launches.items()),
            expected="one launch",
            do="judge each launch by its own files",
        )
    return ranks


def _launches(recorded: Recorded) -> set[str]:
    """As named in the rows. Before it joined the others a rank knows of no launch, and has no rows either."""
    named = {f"launch {mark.id}" for mark in recorded.of(LaunchMark)}
    return named or ({"a launch without a name"} if recorded.rows else set())


def _require_place(plan: Plan, rank: int, file: RankFile) -> None:
    info = decode(RankInfo, file.start, where=f"{file.path}: line 1")
    if rank >= plan.world_size:
        raise RecordError(
            f"{file.path}: of a rank that the plan does not have",
            got=rank,
            expected=f"0 to {plan.world_size - 1}",
            do="move it to the run that it is of",
        )
    for field, got, expected in (
        ("rank", info.rank, rank),
        ("world_size", info.world_size, plan.world_size),
        ("backend", info.backend.value, plan.backend.value),
    ):
        if got != expected:
            raise RecordError(
                f"{file.path}: line 1: another {field} than the file's name and the plan say",
                got=got,
                expected=expected,
                do="it was renamed, or is of another run",
            )


def _rows(plan: Plan, file: RankFile) -> Iterator[RecordedRow]:
    for number, fields in enumerate(file.rows, start=2):
        where = f"{file.path}: line {number}"
        kind = _KINDS.get(str(fields.get("kind")))
        if kind is None:
            raise RecordError(
                f"{where}: no row of a run", got=f"kind {fields.get('kind')!r}", expected=", ".join(_KINDS)
            )
        row: RecordedRow = decode(kind, fields, where=where)
        for name, (got, count) in _indices(plan, row).items():
            if not 0 <= got < count:
                raise RecordError(f"{where}: {name} is out of the plan's list", got=got, expected=f"below {count}")
        yield row


def _indices(plan: Plan, row: RecordedRow) -> Mapping[str, tuple[int, int]]:
    """The row's references to the plan's lists, each with the length of its list."""
    timing = plan.latency
    if isinstance(row, MemoryRow):
        return {"arm": (row.arm, 0 if plan.memory is None else len(plan.memory.arms))}
    if isinstance(row, ExecutionRow):
        return {"arm": (row.arm, 0 if plan.kernels is None else len(plan.kernels.arms))}
    if isinstance(row, WireRow):
        return {
            "case": (row.case, 0 if timing is None else len(timing.wire_cases)),
            "arm": (row.arm, 0 if timing is None else len(timing.arms)),
        }
    if isinstance(row, RoundRow | LookRow | CaseEnd):
        return {"case": (row.case, 0 if timing is None else len(timing.cases))}
    return {}
