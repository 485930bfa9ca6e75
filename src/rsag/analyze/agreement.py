"""Whether all ranks ran the same in each range: where they did not, the difference is the finding."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from rsag.records.kernels import Agreement, AgreementRow, RangeRow, Structure


@dataclass(slots=True)
class _Ran:
    """One rank's share of a range: over all its threads."""

    structures: set[Structure] = field(default_factory=set)
    collectives: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        structures = " and ".join(sorted(structure.value for structure in self.structures))
        counted = self.collectives or self.calls
        what = ", ".join(f"{count} {collective}" for collective, count in sorted(counted.items()))
        return f"{structures} ({what or 'nothing'})"


def agreement(rows: Sequence[RangeRow], ranks: Sequence[int | None]) -> tuple[AgreementRow, ...]:
    """One row for each range that more than one rank could have: a rank is a device of a process of a file.

    `ranks` are the files' own; a file without one is called by its place.
    """
    members = list(dict.fromkeys(_member(row) for row in rows))
    ranges: dict[str, dict[tuple[int, int | None, int | None], _Ran]] = defaultdict(dict)
    for row in rows:
        ran = ranges[row.range].setdefault(_member(row), _Ran())
        ran.structures.add(row.structure)
        ran.collectives.update(row.collectives)
        ran.calls.update(row.calls)
    if len(members) < 2:
        return ()
    return tuple(_row(name, there, members, ranks) for name, there in ranges.items())


def _member(row: RangeRow) -> tuple[int, int | None, int | None]:
    return row.source, row.pid, row.device


def _row(
    name: str,
    there: dict[tuple[int, int | None, int | None], _Ran],
    members: Sequence[tuple[int, int | None, int | None]],
    ranks: Sequence[int | None],
) -> AgreementRow:
    kinds: dict[str, list[str]] = defaultdict(list)
    for member in members:
        kinds[str(there.get(member, "not there"))].append(_label(member, members, ranks))
    if len(kinds) == 1:
        return AgreementRow(range=name, num_ranks=len(members), agreement=Agreement.AGREE, message=next(iter(kinds)))
    message = "; ".join(f"{', '.join(labels)}: {kind}" for kind, labels in kinds.items())
    return AgreementRow(range=name, num_ranks=len(members), agreement=Agreement.DIFFER, message=message)


def _label(
    member: tuple[int, int | None, int | None],
    members: Sequence[tuple[int, int | None, int | None]],
    ranks: Sequence[int | None],
) -> str:
    source, process, device = member
    rank = ranks[source]
    name = f"file {source + 1}" if rank is None else f"rank {rank}"
    if sum(other[0] == source for other in members) > 1:
        name += f" pid {process} device {device}"
    return name
