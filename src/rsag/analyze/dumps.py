"""Whether ranks asked for the same, by their flight recorders: group by group, sequence number by sequence number."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest

from rsag.analyze.agreement import differ, labels_of, not_recorded, said_by
from rsag.analyze.steps import Member, Step, step
from rsag.analyze.structure import counted
from rsag.analyze.words import P2P, word
from rsag.records.kernels import Agreement, AgreementRow
from rsag.traces.events import Capture, Format

Group = tuple[str | None, tuple[int, ...] | None]
"""A group's name and ranks: several groups of one job may have one name."""

Entries = dict[int, tuple[Step, ...]]
"""Calls by sequence number: those of a coalesced group share one."""


def dumps_agreement(captures: Sequence[Capture]) -> tuple[AgreementRow, ...]:
    """One row for each group that the dumps of several ranks could have; sends and receives are not compared.

    Numbers before the first that every rank still has are not compared: a recorder drops its oldest calls.
    """
    dumps = {source: capture for source, capture in enumerate(captures) if capture.format is Format.FLIGHT_RECORDER}
    ranks = [capture.origin.rank for capture in captures]
    members = {source: Member(source, None, None) for source in dumps}
    labels = labels_of(list(members.values()), ranks)
    groups: dict[Group, dict[int, Entries]] = defaultdict(dict)
    for source, capture in dumps.items():
        for group, entries in _entries(capture).items():
            groups[group][source] = entries
    rows = []
    for (name, of_ranks), there in groups.items():
        expected = [source for source in dumps if of_ranks is None or ranks[source] in (None, *of_ranks)]
        if len(expected) > 1:
            label = f"{name}" + (f" ({', '.join(map(str, of_ranks))})" if of_ranks and len(of_ranks) <= 8 else "")
            named = {labels[members[source]]: there.get(source, {}) for source in expected}
            rows.append(_row(label, named))
    return tuple(rows)


def _entries(capture: Capture) -> dict[Group, Entries]:
    groups: dict[Group, dict[int, list[Step]]] = defaultdict(lambda: defaultdict(list))
    for call in capture.calls:
        metadata, collective = call.metadata, word(call.metadata.collective)
        if metadata.sequence is not None and collective is not None and collective not in P2P:
            entry = step(collective, metadata, call.state or "")
            groups[metadata.group, metadata.group_ranks][metadata.sequence].append(entry)
    return {group: {number: tuple(steps) for number, steps in there.items()} for group, there in groups.items()}


def _row(group: str, there: Mapping[str, Entries]) -> AgreementRow:
    steps = [one for entries in there.values() for found in entries.values() for one in found]
    message = _first_difference(there)
    return AgreementRow(
        range=None,
        group=group,
        num_ranks=len(there),
        agreement=Agreement.AGREE if message is None else Agreement.DIFFER,
        message=message or _compared(there),
        not_compared=not_recorded(steps),
    )


def _compared(there: Mapping[str, Entries]) -> str:
    first = max(min(entries) for entries in there.values())
    return f"the same calls at the sequence numbers {first} to {max(max(entries) for entries in there.values())}"


def _first_difference(there: Mapping[str, Entries]) -> str | None:
    if not all(there.values()):
        return said_by({rank: counted(len(one), "call") + " in this group" for rank, one in there.items()})
    first = max(min(entries) for entries in there.values())
    for number in sorted({one for entries in there.values() for one in entries if one >= first}):
        found = {rank: entries.get(number, ()) for rank, entries in there.items()}
        places = zip_longest(*found.values())
        if any(differ([_without_state(one) for one in ones]) for ones in places):
            said = {rank: _said(there[rank], steps) for rank, steps in found.items()}
            return f"at sequence number {number} {said_by(said)}{_completed(found)}"
    return None


def _without_state(one: Step | None) -> Step | None:
    return None if one is None else replace(one, how="")


def _said(entries: Entries, steps: Sequence[Step]) -> str:
    return " and ".join(map(str, steps)) or f"nothing, its last is {max(entries)}"


def _completed(found: Mapping[str, Sequence[Step]]) -> str:
    done = all(steps and all(one.how == "completed" for one in steps) for steps in found.values())
    return ", although all say completed" if done else ""
