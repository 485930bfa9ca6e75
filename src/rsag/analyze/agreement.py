"""Whether all ranks did the same in each range, step by step; the first difference is the finding."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields

from rsag.analyze.steps import GRAPH, Instance, Member, Step, Steps
from rsag.analyze.structure import counted
from rsag.records.kernels import Agreement, AgreementRow


def agreement(
    ran: Mapping[Member, Mapping[str, Sequence[Instance]]], ranks: Sequence[int | None]
) -> tuple[AgreementRow, ...]:
    """One row for each range that holds a collective on some rank, where there is more than one rank.

    `ranks` are the files' own; a file without one is called by its place. A rank without the range, or without any
    collective, differs from those that have it.
    """
    if len(ran) < 2:
        return ()
    labels = labels_of(list(ran), ranks)
    names = dict.fromkeys(name for ranges in ran.values() for name in ranges)
    rows = []
    for name in names:
        there = {labels[member]: ranges.get(name) for member, ranges in ran.items()}
        steps = [one for instances in there.values() for one in _all_steps(instances or ())]
        if steps:
            rows.append(_row(name, there, steps))
    return tuple(rows)


def _all_steps(instances: Sequence[Instance]) -> list[Step]:
    return [step for one in instances for steps in (one.own, *one.others) for step in steps]


def _row(name: str, there: Mapping[str, Sequence[Instance] | None], steps: Sequence[Step]) -> AgreementRow:
    difference = _first_difference(there)
    if difference is not None:
        outcome, message = Agreement.DIFFER, difference
    elif any(step.collective in (None, GRAPH) for step in steps):
        outcome = Agreement.CANNOT_TELL
        message = "the same as far as it is recorded, and not all collectives are: graphs, or kernels that fit anything"
    else:
        outcome, message = Agreement.AGREE, "the same collectives in the same order"
    return AgreementRow(
        range=name,
        group=None,
        num_ranks=len(there),
        agreement=outcome,
        message=message,
        not_compared=not_recorded(steps),
    )


def _first_difference(there: Mapping[str, Sequence[Instance] | None]) -> str | None:
    absent = {rank: "the range is not there" for rank, instances in there.items() if instances is None}
    if absent:
        present = {rank: _summary(instances) for rank, instances in there.items() if instances is not None}
        return said_by({**present, **absent})
    ran = {rank: instances or () for rank, instances in there.items()}
    numbers = {rank: len(instances) for rank, instances in ran.items()}
    if len(set(numbers.values())) > 1:
        return said_by({rank: counted(number, "instance") for rank, number in numbers.items()})
    for number, ones in enumerate(zip(*ran.values())):
        where = f"instance {number}, " if len(next(iter(ran.values()))) > 1 else ""
        own = difference(dict(zip(ran, (one.own for one in ones))))
        if own is not None:
            return where + own
        num_threads = max(len(one.others) for one in ones)
        for thread in range(num_threads):
            steps = [one.others[thread] if thread < len(one.others) else () for one in ones]
            other = difference(dict(zip(ran, steps)))
            if other is not None:
                return f"{where}on other threads, {other}"
    return None


def _summary(instances: Sequence[Instance]) -> str:
    number = len(_all_steps(instances))
    return counted(number, "collective")


def difference(sequences: Mapping[str, Steps]) -> str | None:
    """The first place at which sequences of steps differ, with what each rank has there; None where none does."""
    if any(sequences.values()) and not all(sequences.values()):
        said = {rank: counted(len(steps), "collective") for rank, steps in sequences.items()}
        return said_by(said)
    for place in range(max(map(len, sequences.values()))):
        there = {rank: steps[place] if place < len(steps) else None for rank, steps in sequences.items()}
        if differ(list(there.values())):
            said = {rank: "nothing more" if step is None else str(step) for rank, step in there.items()}
            return f"at position {place} {said_by(said)}"
    return None


def differ(steps: Sequence[Step | None]) -> bool:
    """Whether steps cannot be of one collective; what a file does not record cannot differ."""
    known = [step for step in steps if step is not None]
    if not known or len(known) < len(steps):
        return bool(known)
    return any(len({getattr(step, name) for step in known} - {None}) > 1 for name in _FIELDS)


_FIELDS = tuple(field.name for field in fields(Step))


def not_recorded(steps: Sequence[Step]) -> tuple[str, ...]:
    """What was not compared, because some file does not say it."""
    aspects = {"counts": "numel", "dtype": "dtype", "group size": "group_size"}
    return tuple(name for name, field in aspects.items() if any(getattr(step, field) is None for step in steps))


def said_by(said: Mapping[str, str]) -> str:
    """`rank 0, rank 2: all_reduce; rank 1: reduce_scatter`."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for rank, words in said.items():
        kinds[words].append(rank)
    return "; ".join(f"{_ranks(ranks)}: {words}" for words, ranks in kinds.items())


def _ranks(labels: Sequence[str]) -> str:
    return ", ".join(labels) if len(labels) <= 4 else f"{', '.join(labels[:3])} and {len(labels) - 3} more"


def labels_of(members: Sequence[Member], ranks: Sequence[int | None]) -> dict[Member, str]:
    """What each rank is called: by its file's number where that is its own, and by its place in the file."""
    known = [ranks[source] for source in dict.fromkeys(member.source for member in members)]
    return {member: _label(member, members, ranks[member.source], known) for member in members}


def _label(member: Member, members: Sequence[Member], rank: int | None, known: Sequence[int | None]) -> str:
    file = f"file {member.source + 1}"
    name = file if rank is None else f"rank {rank}"
    if rank is not None and known.count(rank) > 1:
        name += f" ({file})"
    if sum(other.source == member.source for other in members) > 1:
        name += f" pid {member.process} device {member.device}"
    return name
