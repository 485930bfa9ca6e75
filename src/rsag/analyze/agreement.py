"""Whether all ranks ran the same in each range: where they did not, the difference is the finding."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from rsag.analyze.words import P2P
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


Member = tuple[int, int | None, int | None]
"""File, process and device: what is one rank."""


def agreement(rows: Sequence[RangeRow], ranks: Sequence[int | None]) -> tuple[AgreementRow, ...]:
    """One row for each range that more than one rank could have: a rank is a device of a process of a file.

    `ranks` are the files' own; a file without one is called by its place. What ran on no device counts for every
    device of its process. Sends and receives differ between ranks by their nature and are not compared.
    """
    devices: dict[tuple[int, int | None], dict[int, None]] = defaultdict(dict)
    for row in rows:
        if row.device is not None:
            devices[row.source, row.pid][row.device] = None
    ranges: dict[str, dict[Member, _Ran]] = defaultdict(dict)
    members: dict[Member, None] = {}
    for row in rows:
        everywhere: list[int | None] = [*devices.get((row.source, row.pid), {})] or [None]
        for device in everywhere if row.device is None else [row.device]:
            member = (row.source, row.pid, device)
            members[member] = None
            ran = ranges[row.range].setdefault(member, _Ran())
            ran.structures.add(row.structure)
            ran.collectives.update(_without_p2p(row.collectives))
            ran.calls.update(_without_p2p(row.calls))
    if len(members) < 2:
        return ()
    return tuple(_row(name, there, list(members), ranks) for name, there in ranges.items())


def _without_p2p(counts: dict[str, int]) -> dict[str, int]:
    return {collective: count for collective, count in counts.items() if collective not in P2P}


def _row(name: str, there: dict[Member, _Ran], members: Sequence[Member], ranks: Sequence[int | None]) -> AgreementRow:
    kinds: dict[str, list[str]] = defaultdict(list)
    for member in members:
        kinds[str(there.get(member, "not there"))].append(_label(member, members, ranks))
    if len(kinds) == 1:
        return AgreementRow(range=name, num_ranks=len(members), agreement=Agreement.AGREE, message=next(iter(kinds)))
    message = "; ".join(f"{', '.join(labels)}: {kind}" for kind, labels in kinds.items())
    return AgreementRow(range=name, num_ranks=len(members), agreement=Agreement.DIFFER, message=message)


def _label(member: Member, members: Sequence[Member], ranks: Sequence[int | None]) -> str:
    source, process, device = member
    rank = ranks[source]
    name = f"file {source + 1}" if rank is None else f"rank {rank}"
    if sum(other[0] == source for other in members) > 1:
        name += f" pid {process} device {device}"
    return name
