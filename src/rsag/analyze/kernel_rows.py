"""One row for each range and device, one for each device: what the instances of a range have in common."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rsag.analyze.attribution import enclosing
from rsag.analyze.chosen import Chosen, disagreement
from rsag.analyze.executed import Executed, Joined
from rsag.analyze.structure import Held, Judged, counted, judge, not_expanded
from rsag.analyze.words import name_says, runs_as
from rsag.records.kernels import (
    DeviceRow,
    Evidence,
    KernelReason,
    KernelReasonCode,
    KernelRow,
    RangeRow,
    Rule,
    Structure,
)
from rsag.records.protocol import Choice
from rsag.traces.events import LimitCode, OperationKind, Range
from rsag.traces.kernel_names import decode

Place = tuple[str, int, int]
"""A range's name, process and thread."""


@dataclass(frozen=True, slots=True)
class _Contents:
    """What each range holds, by the range's index: indices of what was executed, of calls, of graph launches."""

    executed: dict[int, list[int]]
    calls: dict[int, list[int]]
    graphs: dict[int, list[int]]

    @classmethod
    def of(cls, joined: Joined, ranges: Sequence[Range], rule: Rule) -> _Contents:
        return cls(
            _held(enclosing(ranges, [one.launch for one in joined.executed], rule)),
            _held(enclosing(ranges, joined.asked, rule)),
            _held(enclosing(ranges, [launch for _, launch in joined.graphs], rule)),
        )


def _held(around: Sequence[tuple[int, ...]]) -> dict[int, list[int]]:
    held: dict[int, list[int]] = defaultdict(list)
    for index, spans in enumerate(around):
        for span in spans:
            held[span].append(index)
    return held


def range_rows(
    source: int, joined: Joined, ranges: Sequence[Range], rule: Rule, choices: Sequence[Choice]
) -> list[RangeRow]:
    """The rows of the ranges that hold collectives, or whose time holds some of other threads; in order of time."""
    contents = _Contents.of(joined, ranges, rule)
    anywhere = _held(enclosing(ranges, [one.launch for one in joined.executed], Rule.ANY_THREAD))
    chosen = Chosen(choices, joined.executed)
    places: dict[Place, list[int]] = defaultdict(list)
    for index in sorted(range(len(ranges)), key=lambda index: ranges[index].start_ns):
        places[ranges[index].name, ranges[index].process, ranges[index].thread].append(index)
    rows = []
    for place, indices in places.items():
        helds = [_instance(joined, contents, index) for index in indices]
        own = {number for index in indices for number in contents.executed.get(index, ())}
        others = {number for index in indices for number in anywhere.get(index, ())} - own
        elsewhere = [joined.executed[number] for number in others if _is_kernel(joined.executed[number])]
        for device in _devices(helds):
            unattributed = sum(device in (None, one.operation.device) for one in elsewhere)
            row = _row(source, place, device, helds, rule, chosen, unattributed)
            if row is not None:
                rows.append(row)
    return rows


def _instance(joined: Joined, contents: _Contents, index: int) -> Held:
    executed = [joined.executed[number] for number in contents.executed.get(index, ())]
    held = set(contents.calls.get(index, ())) | {number for one in executed for number in one.calls}
    limits = {limit.code for limit in joined.capture.limits}
    return Held(
        calls={number: joined.asked[number] for number in sorted(held) if joined.asked[number].is_collective},
        executed=tuple(executed),
        graphs=tuple(joined.graphs[number][0] for number in contents.graphs.get(index, ())),
        has_device_rows=LimitCode.NO_DEVICE_ROWS not in limits,
        backend=joined.capture.origin.backend,
    )


def _devices(helds: Iterable[Held]) -> list[int | None]:
    devices = {one.operation.device for held in helds for one in [*held.kernels(None), *held.copied(None)]}
    devices |= {graph.device for held in helds for graph in held.graphs}
    return [*sorted(devices)] or [None]


def _is_kernel(one: Executed) -> bool:
    return one.operation.kind is OperationKind.KERNEL


def _row(
    source: int,
    place: Place,
    device: int | None,
    helds: Sequence[Held],
    rule: Rule,
    chosen: Chosen,
    unattributed: int,
) -> RangeRow | None:
    judged = [(held, one) for held in helds if (one := judge(held, device)) is not None]
    if not judged and not unattributed:
        return None
    kernels = _distinct(one for held, _ in judged for one in held.kernels(device))
    copies = _distinct(one for held, _ in judged for one in held.copied(device))
    calls = {number: call for held, _ in judged for number, call in held.calls.items()}
    asked: Counter[str] = Counter()
    for call in calls.values():
        asked[call.collective or "unknown"] += call.count
    structure, evidence, reasons = _common([one for _, one in judged])
    if judged:
        reasons += _of_kernels(kernels, chosen) + _of_backend(judged) + _without_kernel(judged)
    if unattributed:
        reasons.append(_other_threads(unattributed))
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
        collectives=_by_collective(kernels),
        calls=dict(asked),
        kernels=kernel_rows(kernels, chosen),
        copies=len(copies),
        unattributed=unattributed,
        reasons=tuple(reasons),
    )


def _distinct(executed: Iterable[Executed]) -> list[Executed]:
    """Each once: a kernel lies in several instances where a range lies in one of its own name."""
    return list({id(one): one for one in executed}.values())


def _common(judged: Sequence[Judged]) -> tuple[Structure, Evidence, list[KernelReason]]:
    """What all instances have in common; where they differ, the difference."""
    if not judged:
        return Structure.NOTHING, Evidence.NOTHING, []
    reasons = list(dict.fromkeys(reason for one in judged for reason in one.reasons))
    weakest = max((one.evidence for one in judged), key=list(Evidence).index)
    structures = Counter(one.structure for one in judged)
    if len(structures) == 1:
        return judged[0].structure, weakest, _each_once(reasons)
    message = ", ".join(f"{count} {structure.value}" for structure, count in structures.items())
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


def _of_kernels(kernels: Sequence[Executed], chosen: Chosen) -> list[KernelReason]:
    """Where a kernel's name and its caller, or the library's log, say different things; and kernels of graphs."""
    differ = Counter(
        (said, one.collective)
        for one in kernels
        if one.from_caller and (said := name_says(one.operation.name)) and not runs_as(said, one.collective)
    )
    reasons = [
        KernelReason(
            code=KernelReasonCode.NAME_AND_CALLER_DIFFER,
            message=f"name says {said}, caller says {collective}: {counted(count, 'kernel')}",
        )
        for (said, collective), count in differ.items()
    ]
    names: dict[str, list[Executed]] = defaultdict(list)
    for one in kernels:
        names[one.operation.name].append(one)
    messages = (disagreement(name, chosen.of(alike)) for name, alike in names.items())
    reasons += [
        KernelReason(code=KernelReasonCode.NAME_AND_LOG_DIFFER, message=message)
        for message in dict.fromkeys(messages)
        if message is not None
    ]
    replayed = sum(one.operation.in_graph or (one.launch is not None and one.launch.is_graph) for one in kernels)
    if replayed:
        message = f"{counted(replayed, 'kernel')} ran as part of a CUDA graph, in the range around its replay"
        reasons.append(KernelReason(code=KernelReasonCode.GRAPH_REPLAY, message=message))
    return reasons


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
            ran = {number for one in held.executed for number in one.calls}
            missing.update(
                call.collective or "unknown"
                for number, call in held.calls.items()
                if number not in ran and not call.needs_no_kernel
            )
    if not missing:
        return []
    what = ", ".join(f"{count} {collective}" for collective, count in missing.items())
    message = f"no kernel in the file for {what}: it ran outside of the capture, in a graph, or not on this device"
    return [KernelReason(code=KernelReasonCode.CALLS_WITHOUT_KERNEL, message=message)]


def _other_threads(number: int) -> KernelReason:
    message = f"other threads launched {counted(number, 'kernel')} while the range was open: --any-thread counts them"
    return KernelReason(code=KernelReasonCode.OTHER_THREADS, message=message)


_WEAKER = KernelReason(
    code=KernelReasonCode.WEAKER_RULE,
    message="attributed by time on any thread of the process: weaker evidence than a launch on the range's own thread",
)


def _by_collective(kernels: Iterable[Executed]) -> dict[str, int]:
    return dict(Counter(one.collective or "unknown" for one in kernels))


def kernel_rows(kernels: Iterable[Executed], chosen: Chosen) -> tuple[KernelRow, ...]:
    """The kernels by name, the longest time first."""
    names: dict[str, list[Executed]] = defaultdict(list)
    for one in kernels:
        names[one.operation.name].append(one)
    rows = [
        KernelRow(
            name=name,
            count=len(alike),
            total_ns=sum(one.operation.end_ns - one.operation.start_ns for one in alike),
            claims=decoded.claims if (decoded := decode(name)) else (),
            choices=chosen.of(alike),
        )
        for name, alike in names.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.total_ns))


def device_rows(
    source: int, joined: Joined, ranges: Sequence[Range], rule: Rule, choices: Sequence[Choice]
) -> list[DeviceRow]:
    """All communication kernels of each device, with those that no range holds and those that nobody can place."""
    around = enclosing(ranges, [one.launch for one in joined.executed], rule)
    chosen = Chosen(choices, joined.executed)
    devices: dict[tuple[int | None, int], list[tuple[Executed, bool]]] = defaultdict(list)
    for one, spans in zip(joined.executed, around):
        if _is_kernel(one):
            devices[one.process, one.operation.device].append((one, bool(spans)))
    graphs = Counter((launch.process if launch else graph.process, graph.device) for graph, launch in joined.graphs)
    rows = []
    for process, device in [*devices, *(place for place in graphs if place not in devices)]:
        members = devices.get((process, device), [])
        kernels = [one for one, _ in members]
        unknown = sum(one.launch is None for one in kernels)
        reasons = _of_kernels(kernels, chosen)
        if graphs[process, device]:
            reasons.append(not_expanded(graphs[process, device]))
        if unknown:
            message = f"of {counted(unknown, 'kernel')} the launch is not in the file, so that no range can hold them"
            reasons.append(KernelReason(code=KernelReasonCode.UNKNOWN_LAUNCH, message=message))
        rows.append(
            DeviceRow(
                source=source,
                pid=process,
                device=device,
                collectives=_by_collective(kernels),
                kernels=kernel_rows(kernels, chosen),
                unattributed=sum(not is_held for _, is_held in members),
                unknown=unknown,
                graph_launches=graphs[process, device],
                reasons=tuple(reasons),
            )
        )
    return sorted(rows, key=lambda row: (row.pid or 0, row.device or 0))
