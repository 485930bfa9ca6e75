"""Rank files as the page reads them: line by line, so that a large run fits, and up to where a damaged one ends.

The judge reads strictly; what it refuses is looked at here all the same, and the damage is said beside it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rsag.errors import RecordError
from rsag.records.codec import check_header, decode, parse_json
from rsag.records.jsonl import SCHEMA, VERSION
from rsag.records.latency import RoundRow
from rsag.records.memory import MemoryRow
from rsag.records.rundir import rank_file, rank_files
from rsag.report.page.files import Missing

_CASE = re.compile(rb'\{"kind":"round","case":(\d+),')
"""How the ranks write it: of the rounds of a thousand cases, only those that are shown are parsed."""

MOST_NAMED = 8
"""So many ranks that left no file are named one by one."""


@dataclass(slots=True, kw_only=True)
class RankRows:
    """What the page needs of one rank: rounds by case and number, memory by arm."""

    rank: int
    rounds: dict[int, dict[int, RoundRow]] = field(default_factory=dict)
    memory: dict[int, MemoryRow] = field(default_factory=dict)


def read_ranks(
    directory: Path, num_ranks: int, cases: Collection[int]
) -> tuple[tuple[RankRows, ...], tuple[Missing, ...]]:
    """The rows of all ranks that left any, with the rounds of `cases` only; and what is missing of them.

    `num_ranks` is how many ought to have left some.
    """
    ranks, missing = [], []
    for rank, path in rank_files(directory):
        rows = RankRows(rank=rank)
        try:
            for row in _rows(path, cases):
                if isinstance(row, RoundRow):
                    rows.rounds.setdefault(row.case, {})[row.round] = row
                else:
                    rows.memory[row.arm] = row
        except (RecordError, OSError) as error:
            missing.append(Missing(what=path.name, why=str(error).removeprefix(f"{path}: ")))
        ranks.append(rows)
    there = {rows.rank for rows in ranks}
    absent = (rank for rank in range(num_ranks) if rank not in there)
    named = [rank_file(directory, rank).name for rank in itertools.islice(absent, MOST_NAMED)]
    if named:
        others = num_ranks - sum(rank < num_ranks for rank in there) - len(named)
        what = ", ".join(named) + (f" and {others:,} more" if others else "")
        missing.append(Missing(what=what, why=f"no records of {'this rank' if what == named[0] else 'these ranks'}"))
    return tuple(ranks), tuple(missing)


def _rows(path: Path, cases: Collection[int]) -> Iterator[RoundRow | MemoryRow]:
    """The rows that the page needs, then RecordError for a file that does not end as a rank that ended well."""
    last: object = None
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            found = _CASE.match(line)
            if found is not None and int(found[1]) not in cases:
                last = "round"
                continue
            where = f"{path}: line {number}"
            row = parse_json(line, where=str(path), line=number)
            if not isinstance(row, dict):
                raise RecordError(f"{where}: not an object")
            if number == 1:
                check_header(row, schema=SCHEMA, version=VERSION, where=f"{path}: line 1")
            last = row.get("kind")
            if last == "round" and row.get("case") in cases:
                yield decode(RoundRow, row, where=where)
            elif last == "memory":
                yield decode(MemoryRow, row, where=where)
            elif last == "failed":
                raise RecordError(f"the rank failed: {row.get('error')}: {row.get('message')}")
    if last != "end":
        raise RecordError("no end line: the rank was killed, or still runs")
