"""One row for each range and device: what the instances of the range have in common."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rsag.analyze.asked import Asked
from rsag.analyze.attribution import enclosing
from rsag.analyze.chosen import Chosen
from rsag.analyze.executed import Executed, Joined
from rsag.analyze.kernel_rows import by_collective, disagreements, is_kernel, kernel_rows
from rsag.analyze.structure import Held, Judged, counted, judge
from rsag.records.kernels import Evidence, KernelReason, KernelReasonCode, RangeRow, Rule, Structure
from rsag.traces.events import LimitCode, Range

Place = tuple[str, int, int]
"""A range's name, process and thread."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What each range holds, by the range's index: indices of what was executed, of calls, of graph launches."""

    executed: dict[int, list[int]]
    calls: dict[int, list[int]]
    graphs: dict[int, list[int]]

    @classmethod
    def of(cls, joined: Joined, ranges: Sequence[Range], rule: Rule) -> Contents:
        return cls(
            _held(enclosing(ranges, [one.launch for one in joined.executed], rule)),
            _held(enclosing(ranges, joined.asked, rule)),
            _held(enclosing(ranges, [launch for _, launch in joined.graphs], rule)),
        )

    def without(self, other: Contents) -> Contents:
        """What each range holds here and not there."""
        pairs = ((self.executed, other.executed), (self.calls, other.calls), (self.graphs, other.graphs))
        return Contents(*(_difference(here, there) for here, there in pairs))

    def all_executed(self) -> set[int]:
        """What any range holds."""
        return {number for numbers in self.executed.values() for number in numbers}


def _held(around: Sequence[tuple[int, ...]]) -> dict[int, list[int]]:
    held: dict[int, list[int]] = defaultdict(list)
    for index, spans in enumerate(around):
        for span in spans:
            held[span].append(index)
    return held


def _difference(here: dict[int, list[int]], there: dict[int, list[int]]) -> dict[int, list[int]]:
    return {span: sorted(set(numbers).difference(there.get(span, ()))) for span, numbers in here.items()}


def range_rows(
    source: int,
    joined: Joined,
    ranges: Sequence[Range],
    contents: Contents,
    anywhere: Contents,
    rule: Rule,
    chosen: Chosen,
) -> list[RangeRow]:
    """The rows of the ranges that hold collectives, or whose time holds some of other threads; in order of time.

    `contents` is by `rule`, `anywhere` by the weaker of the two.
    """
    places: dict[Place, list[int]] = defaultdict(list)
    for index in sorted(range(len(ranges)), key=lambda index: ranges[index].start_ns):
        places[ranges[index].name, ranges[index].process, ranges[index].thread].append(index)
    rows = []
    for place, indices in places.items():
        helds = instances(joined, contents, indices)
        kernels = [joined.executed[number] for number in _others(indices, anywhere.executed, contents.executed)]
        calls = [joined.asked[number] for number in _others(indices, anywhere.calls, contents.calls)]
        num_calls = sum(call.count for call in calls if call.is_collective)
        for device in _devices(helds):
            num_kernels = sum(is_kernel(one) and device in (None, one.operation.device) for one in kernels)
            row = _row(source, place, device, helds, rule, chosen, (num_kernels, num_calls))
            if row is not None:
                rows.append(row)
    return rows


def _others(indices: Iterable[int], anywhere: dict[int, list[int]], own: dict[int, list[int]]) -> set[int]:
    """What other threads did while instances of a range were open."""
    there = {number for index in indices for number in anywhere.get(index, ())}
    return there - {number for index in indices for number in own.get(index, ())}


def instances(joined: Joined, contents: Contents, indices: Sequence[int]) -> list[Held]:
    """What each instance of a range holds, by the indices of the instances."""
    has_device_rows = LimitCode.NO_DEVICE_ROWS not in {limit.code for limit in joined.capture.limits}
    ran = any(is_kernel(joined.executed[number]) for index in indices for number in contents.executed.get(index, ()))
    return [_instance(joined, contents, index, has_device_rows, ran) for index in indices]


def _instance(joined: Joined, contents: Contents, index: int, has_device_rows: bool, others_ran: bool) -> Held:
    executed = [joined.executed[number] for number in contents.executed.get(index, ())]
    held = set(contents.calls.get(index, ())) | {number for one in executed for number in one.calls}
    return Held(
        calls={number: joined.asked[number] for number in sorted(held) if joined.asked[number].is_collective},
        executed=tuple(executed),
        graphs=tuple(joined.graphs[number][0] for number in contents.graphs.get(index, ())),
        has_device_rows=has_device_rows,
        num_skipped=joined.capture.quarantine.num_skipped,
        num_other_kernels=joined.capture.num_other_kernels,
        others_ran=others_ran,
        backend=joined.capture.origin.backend,
    )


def _devices(helds: Iterable[Held]) -> list[int | None]:
    devices = {one.operation.device for held in helds for one in [*held.kernels(None), *held.copied(None)]}
    devices |= {graph.device for held in helds for graph in held.graphs}
    return [*sorted(devices)] or [None]


def _row(
    source: int,
    place: Place,
    device: int | None,
    helds: Sequence[Held],
    rule: Rule,
    chosen: Chosen,
    unattributed: tuple[int, int],
) -> RangeRow | None:
    judged = [(held, one) for held in helds if (one := judge(held, device)) is not None]
    if not judged and not any(unattributed):
        return None
    kernels = _distinct(one for held, _ in judged for one in held.kernels(device))
    copies = _distinct(one for held, _ in judged for one in held.copied(device))
    calls = {number: call for held, _ in judged for number, call in held.calls.items()}
    asked: Counter[str] = Counter()
    for call in calls.values():
        asked[call.collective or "unknown"] += call.count
    structure, evidence, reasons = _common(judged, device)
    if judged:
        reasons += (
            disagreements(kernels, chosen) + _of_backend(judged) + _without_kernel(judged) + _coalesced(calls.values())
        )
    if any(unattributed):
        reasons.append(_other_threads(*unattributed))
    if rule is Rule.ANY_THREAD and kernels:
        reasons.append(_WEAKER)
    name, process, thread = place
    return RangeRow(
        source=source,
        range=name,
        pid=process,
        tid=thread,
        device=device,
        instances=len(judged) or len(helds),
        structure=structure,
        evidence=evidence,
        collectives=by_collective(kernels),
        calls=dict(asked),
        kernels=kernel_rows(kernels, chosen),
        copies=len(copies),
        unattributed=unattributed[0],
        unattributed_calls=unattributed[1],
        reasons=tuple(reasons),
    )


def _distinct(executed: Iterable[Executed]) -> list[Executed]:
    """Each once: a kernel lies in several instances where a range lies in one of its own name."""
    return list({id(one): one for one in executed}.values())


def _common(
    judged: Sequence[tuple[Held, Judged]], device: int | None
) -> tuple[Structure, Evidence, list[KernelReason]]:
    """What all instances have in common; where they differ in structure or in kinds of collectives, the difference."""
    if not judged:
        return Structure.NOTHING, Evidence.NOTHING, []
    reasons = list(dict.fromkeys(reason for _, one in judged for reason in one.reasons))
    weakest = max((one.evidence for _, one in judged), key=list(Evidence).index)
    alike = Counter((one.structure, held.kinds(device)) for held, one in judged)
    if len(alike) == 1:
        return judged[0][1].structure, weakest, _each_once(reasons)
    message = ", ".join(
        f"{count} {structure.value}" + (f" of {' and '.join(kinds)}" if kinds else "")
        for (structure, kinds), count in alike.items()
    )
    differ = KernelReason(code=KernelReasonCode.INSTANCES_DIFFER, message=f"instances of the range differ: {message}")
    return Structure.MIXED, weakest, [differ, *_each_once(reasons)]


def _each_once(reasons: Sequence[KernelReason]) -> list[KernelReason]:
    """The first message of each code, with how many more there are."""
    by_code: dict[KernelReasonCode, list[KernelReason]] = defaultdict(list)
    for reason in reasons:
        by_code[reason.code].append(reason)
    return [
        KernelReason(
            code=code,
            message=alike[0].message + (f" (and {len(alike) - 1} like it)" if len(alike) > 1 else ""),
        )
        for code, alike in by_code.items()
    ]


def _of_backend(judged: Sequence[tuple[Held, Judged]]) -> list[KernelReason]:
    """Where a backend's own thread says that it ran something else than what was asked for."""
    others: Counter[tuple[str, str, str]] = Counter()
    for held, _ in judged:
        for call in held.calls.values():
            if call.host_backend and call.ran_as and call.collective and call.ran_as != call.collective:
                others[call.host_backend, call.ran_as, call.collective] += 1
    return [
        KernelReason(
            code=KernelReasonCode.BACKEND_RAN_OTHER,
            message=f"{backend} ran {ran_as} for {asked}: {counted(count, 'call')}",
        )
        for (backend, ran_as, asked), count in others.items()
    ]


def _without_kernel(judged: Sequence[tuple[Held, Judged]]) -> list[KernelReason]:
    """Calls beside kernels that have none of their own: not where there is none at all, which has its reasons."""
    missing: Counter[str] = Counter()
    for held, _ in judged:
        if held.kernels(None):
            missing.update(call.collective or "unknown" for call in held.without_execution())
    if not missing:
        return []
    what = ", ".join(f"{count} {collective}" for collective, count in missing.items())
    message = f"no kernel in this range for {what}: launched outside of it or of the capture, or in a graph"
    return [KernelReason(code=KernelReasonCode.CALLS_WITHOUT_KERNEL, message=message)]


def _coalesced(calls: Iterable[Asked]) -> list[KernelReason]:
    number = sum(call.is_coalesced for call in calls)
    if not number:
        return []
    message = (
        f"{counted(number, 'coalesced call')}: how many tensors each was for, and so how large a group, is not known"
    )
    return [KernelReason(code=KernelReasonCode.COALESCED, message=message)]


def _other_threads(num_kernels: int, num_calls: int) -> KernelReason:
    did = f"launched {counted(num_kernels, 'kernel')}" if num_kernels else ""
    asked = f"asked for {counted(num_calls, 'collective')}" if num_calls else ""
    message = (
        f"other threads {' and '.join(filter(None, (did, asked)))} while the range was open: --any-thread counts them"
    )
    return KernelReason(code=KernelReasonCode.OTHER_THREADS, message=message)


_WEAKER = KernelReason(
    code=KernelReasonCode.WEAKER_RULE,
    message="attributed by time on any thread of the process: weaker evidence than a launch on the range's own thread",
)
