"""What really ran: from captures to the answer, `rsag kernels`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase

from rsag.analyze.agreement import agreement
from rsag.analyze.asked import Asked
from rsag.analyze.chosen import Chosen
from rsag.analyze.dumps import dumps_agreement
from rsag.analyze.executed import Executed, Joined, join
from rsag.analyze.kernel_rows import device_rows
from rsag.analyze.logs import choices_for, unlike_logs
from rsag.analyze.range_rows import Contents, range_rows
from rsag.analyze.steps import Instance, Member, instances
from rsag.analyze.sums import sums_agreement, sums_devices, sums_ranges
from rsag.analyze.transfers import Transfers, transfers
from rsag.records.kernels import (
    CallRow,
    ChoiceRow,
    KernelsDocument,
    LimitRow,
    QuarantineRows,
    Rule,
    SkippedRow,
    SourceRow,
)
from rsag.records.protocol import Choice
from rsag.traces.events import Capture, Format, OperationKind, Range, RangeKind, SummedKernels

# The formats that hold what a rank did in its ranges; logs, sums and dumps hold less.
_OF_RANKS = (Format.KINETO, Format.NSYS_SQLITE)


def read_kernels(
    captures: Sequence[Capture], ranges: str | None = None, rule: Rule = Rule.SAME_THREAD
) -> KernelsDocument:
    """What `captures` show of the collectives that ran, in the ranges whose name fits the glob `ranges`.

    Without a glob the user's own marks are meant, and torch's and the library's ranges are left out. Several captures
    are taken as the ranks of one step, a library's log as a word on all of them. Pure: the same captures give the same
    document.
    """
    joined = [join(capture) for capture in captures]
    range_rows_, device_rows_, left_out = [], [], 0
    steps: dict[Member, dict[str, list[Instance]]] = {}
    for source, one in enumerate(joined):
        wanted = [span for span in one.capture.ranges if _is_wanted(span, ranges)]
        by_thread, by_time = (Contents.of(one, wanted, each) for each in (Rule.SAME_THREAD, Rule.ANY_THREAD))
        contents = by_thread if rule is Rule.SAME_THREAD else by_time
        if one.capture.format in _OF_RANKS:
            steps |= instances(source, one, wanted, by_thread, by_time)
        chosen = Chosen(choices_for(one.capture, captures), one.executed)
        rows = range_rows(source, one, wanted, contents, by_time, rule, chosen)
        summed = [row for row in one.capture.sums if _is_wanted_sum(row, ranges)]
        rows += sums_ranges(source, summed)
        range_rows_ += rows
        device_rows_ += device_rows(source, one, contents.all_executed(), chosen)
        device_rows_ += sums_devices(source, one.capture.sums)
        shown = {row.range for row in rows}
        left_out += len({span.name for span in wanted} - shown)
    side_by_side = _transfers(joined)
    return KernelsDocument(
        rule=rule,
        sources=tuple(_source(one) for one in joined),
        ranges=tuple(range_rows_),
        ranges_left_out=left_out,
        devices=tuple(device_rows_),
        agreement=(
            *agreement(steps, [capture.origin.rank for capture in captures]),
            *sums_agreement(captures),
            *dumps_agreement(captures),
        ),
        transfers=side_by_side.rows,
        notes=(*side_by_side.notes, *unlike_logs(captures)),
        quarantine=_quarantine(captures),
    )


def _is_wanted(span: Range, ranges: str | None) -> bool:
    return span.kind is RangeKind.MARK if ranges is None else fnmatchcase(span.name, ranges)


def _is_wanted_sum(row: SummedKernels, ranges: str | None) -> bool:
    return bool(row.range) and (not row.range.startswith("NCCL:") if ranges is None else fnmatchcase(row.range, ranges))


def _transfers(joined: Sequence[Joined]) -> Transfers:
    """Every device of every process and file is a rank: by its own number where a file is one rank's.

    A profile without kernels is a rank that ran nothing. Nsight's exports count each from its own start.
    """
    members: dict[tuple[int, int | None, int | None], list[Executed]] = {}
    for source, one in enumerate(joined):
        kernels = [executed for executed in one.executed if executed.operation.kind is OperationKind.KERNEL]
        for executed in kernels:
            members.setdefault((source, executed.process, executed.operation.device), []).append(executed)
        if not kernels and one.capture.format in _OF_RANKS:
            members[source, None, None] = []
    sources = {source for (source, _, _), kernels in members.items() if kernels}
    if len(sources) > 1 and any(joined[source].capture.format is Format.NSYS_SQLITE for source in sources):
        note = "waiting is not told from transfer: each export of Nsight counts time from its own start"
        return Transfers(rows=(), notes=(note,))
    ranks = [joined[source].capture.origin.rank for source, _, _ in members]
    named = None not in ranks and len(set(ranks)) == len(ranks)
    numbers = [rank for rank in ranks if rank is not None] if named else range(len(members))
    return transfers(dict(zip(numbers, members.values())))


def _source(one: Joined) -> SourceRow:
    capture = one.capture
    return SourceRow(
        path=capture.source,
        format=capture.format.value,
        rank=capture.origin.rank,
        world_size=capture.origin.world_size,
        backend=capture.origin.backend,
        library_version=capture.origin.library_version,
        tool=capture.origin.tool,
        num_other_kernels=capture.num_other_kernels,
        calls=_calls(one.asked),
        choices=_choices(capture.choices),
        limits=tuple(LimitRow(code=limit.code.value, message=limit.message) for limit in capture.limits),
    )


def _calls(asked: Sequence[Asked]) -> tuple[CallRow, ...]:
    kinds: Counter[tuple[str, int | None, str | None, int | None, str | None, str | None]] = Counter()
    for call in asked:
        if call.collective is not None and not call.is_group_end:
            metadata = call.metadata
            key = (call.collective, call.rank, metadata.group, metadata.group_size, metadata.dtype, call.ran_as)
            kinds[key] += call.count
    return tuple(
        CallRow(
            collective=collective,
            count=count,
            rank=rank,
            group=group,
            group_size=group_size,
            dtype=dtype,
            ran_as=ran_as,
        )
        for (collective, rank, group, group_size, dtype, ran_as), count in kinds.items()
    )


def _choices(choices: Sequence[Choice]) -> tuple[ChoiceRow, ...]:
    return tuple(ChoiceRow(count=count, choice=choice) for choice, count in Counter(choices).items())


def _quarantine(captures: Sequence[Capture]) -> QuarantineRows:
    return QuarantineRows(
        num_skipped=sum(capture.quarantine.num_skipped for capture in captures),
        num_seen=sum(capture.quarantine.num_seen for capture in captures),
        first=tuple(
            SkippedRow(source=source, offset=skipped.offset, reason=skipped.reason)
            for source, capture in enumerate(captures)
            for skipped in capture.quarantine.first
        ),
    )
