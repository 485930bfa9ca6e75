"""How the collectives of one instance of a range were executed on one device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rsag.analyze.asked import Asked
from rsag.analyze.executed import Executed
from rsag.analyze.pairing import pair
from rsag.analyze.words import ALL_TO_ALL, GATHER, SCATTER
from rsag.collectives import Kind
from rsag.records.kernels import Evidence, KernelReason, KernelReasonCode, Structure
from rsag.traces.events import GraphLaunch, Metadata, OperationKind

_HOST_BACKENDS = ("gloo", "mpi", "ucc")

# What copy engines can do: they move, and cannot reduce (NCCL 2.28 and later, CTA policy ZERO, symmetric windows).
_COPYABLE = frozenset({Kind.ALL_GATHER.value, ALL_TO_ALL, GATHER, SCATTER})

_PAIR = frozenset({Kind.REDUCE_SCATTER.value, Kind.ALL_GATHER.value})

Unit = tuple[str | None, Metadata]
"""One execution: the collective and its description."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What one instance of a range holds, on all devices: calls by their index, what was executed in launch order."""

    calls: dict[int, Asked]
    executed: tuple[Executed, ...]
    graphs: tuple[GraphLaunch, ...]
    has_device_rows: bool
    num_skipped: int  # rows of the file that could not be used, which may have been kernels
    num_other_kernels: int  # of the whole file, which compute
    others_ran: bool  # other instances of the range ran kernels
    backend: str | None

    def kernels(self, device: int | None) -> list[Executed]:
        return [
            one
            for one in self.executed
            if one.operation.kind is OperationKind.KERNEL and device in (None, one.operation.device)
        ]

    def copied(self, device: int | None) -> list[Executed]:
        """The first copy of each call that copies between devices ran: a peer's part each, and no kernel."""
        copies = [one for one in self.executed if one.operation.is_between_devices and one.calls]
        if not copies:
            return []
        by_kernel = {index for one in self.kernels(None) for index in one.calls}
        copies = [one for one in copies if one.calls[0] not in by_kernel]
        number = Counter(one.calls[0] for one in copies)
        first: dict[int, Executed] = {}
        for one in copies:
            call = self.calls.get(one.calls[0])
            if (
                call is not None
                and device in (None, one.operation.device)
                and _may_be_copied(call, number[one.calls[0]])
            ):
                first.setdefault(one.calls[0], one)
        return list(first.values())

    def kinds(self, device: int | None) -> tuple[str, ...]:
        """The kinds of collectives that ran, or were asked for where none did, in alphabetical order."""
        ran = {one.collective or "unknown" for one in [*self.kernels(device), *self.copied(device)]}
        return tuple(sorted(ran or {call.collective or "unknown" for call in self.calls.values()}))

    def without_execution(self) -> list[Asked]:
        """Calls that ought to have run something on a device, and of which nothing is here."""
        ran = {index for one in [*self.kernels(None), *self.copied(None)] for index in one.calls}
        return [
            call
            for index, call in self.calls.items()
            if index not in ran and not call.needs_no_kernel and not self.on_host(call)
        ]

    def on_host(self, call: Asked) -> bool:
        backend = call.host_backend or (None if self.has_device_rows else self.backend)
        return backend in _HOST_BACKENDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    structure: Structure
    evidence: Evidence
    reasons: tuple[KernelReason, ...] = ()


def _may_be_copied(call: Asked, num_copies: int) -> bool:
    size = call.metadata.group_size
    return call.collective in _COPYABLE and size is not None and num_copies >= size - 1 > 0


def judge(held: Held, device: int | None) -> Judged | None:
    """The structure of one instance on `device`; None where it holds nothing there."""
    kernels, copied = held.kernels(device), held.copied(device)
    if kernels:
        graphs = sum(graph.device == kernels[0].operation.device for graph in held.graphs)
        return _incomplete(held, graphs, _of_kernels(held, kernels, copied))
    if copied:
        return _of_copies(held, copied)
    if held.kernels(None) or held.copied(None):
        return None  # it ran elsewhere
    graphs = sum(device in (None, graph.device) for graph in held.graphs)
    if graphs:
        return Judged(structure=Structure.NO_KERNEL, evidence=Evidence.NOTHING, reasons=(not_expanded(graphs),))
    calls = [call for call in held.calls.values() if call.is_collective]
    if not calls:
        return None
    if all(held.on_host(call) for call in calls):
        return _of_calls(held, calls)
    return Judged(structure=Structure.NO_KERNEL, evidence=Evidence.CALLS, reasons=_why_none(held, calls))


def not_expanded(num_graphs: int) -> KernelReason:
    return _reason(
        KernelReasonCode.GRAPHS_NOT_EXPANDED,
        f"{counted(num_graphs, 'graph launch')} not expanded: which kernels ran is not in the file; capture again with "
        "--cuda-graph-trace=node",
    )


def _incomplete(held: Held, num_graphs: int, judged: Judged) -> Judged:
    """What the kernels show, unless there is more in the range than they show."""
    if num_graphs:
        reasons = (not_expanded(num_graphs), *judged.reasons)
        return Judged(structure=Structure.CANNOT_TELL, evidence=judged.evidence, reasons=reasons)
    if held.without_execution():
        return Judged(structure=Structure.MIXED, evidence=judged.evidence, reasons=judged.reasons)
    return judged


def _of_kernels(held: Held, kernels: Sequence[Executed], copied: Sequence[Executed]) -> Judged:
    matched = all(one.from_caller for one in kernels)
    evidence = Evidence.MATCHED if matched else Evidence.NAMES
    reasons = [] if matched else [_by_name(kernels)]
    in_order = sorted([*kernels, *copied], key=_order)
    units: list[Unit] = [(one.collective, one.metadata) for one in in_order]
    if copied:
        reasons.append(_copies(copied))
    grouped = _group(held, kernels)
    if grouped is not None:
        return Judged(structure=grouped[0], evidence=evidence, reasons=(*reasons, *grouped[1]))
    if any(collective is None for collective, _ in units):
        message = "a kernel's name fits any collective, and no record of its caller tells which"
        reasons.append(_reason(KernelReasonCode.UNKNOWN_COLLECTIVE, message))
        return Judged(structure=Structure.CANNOT_TELL, evidence=evidence, reasons=tuple(reasons))
    split = [index for index, count in Counter(i for one in kernels for i in one.calls).items() if count > 1]
    if split:
        message = f"{counted(len(split), 'call')} ran as more than one kernel"
        reasons.append(_reason(KernelReasonCode.MORE_KERNELS_THAN_CALLS, message))
        return Judged(structure=Structure.SEVERAL, evidence=evidence, reasons=tuple(reasons))
    structure, more = _of_units(held, units, alone=Structure.SINGLE_KERNEL)
    return Judged(structure=structure, evidence=evidence, reasons=(*reasons, *more))


def _group(held: Held, kernels: Sequence[Executed]) -> tuple[Structure, list[KernelReason]] | None:
    """What kernels that ran several calls, or a coalesced one, come to; None where there are none.

    A coalesced call is a group of a size that is not recorded, which its own reason says.
    """
    grouped = [one for one in kernels if sum(held.calls[i].count for i in one.calls) > 1]
    asked = sum(held.calls[index].count for index in {index for one in grouped for index in one.calls})
    if not grouped:
        is_coalesced = any(held.calls[index].is_coalesced for one in kernels for index in one.calls)
        return (Structure.GROUPED, []) if is_coalesced else None
    message = f"{asked} collectives ran as {counted(len(grouped), 'kernel')}"
    if asked > len(grouped):
        return Structure.GROUPED, [_reason(KernelReasonCode.GROUP, message)]
    message += " of one group: which ran which is not recorded"
    return Structure.CANNOT_TELL, [_reason(KernelReasonCode.GROUP, message)]


def _of_units(held: Held, units: Sequence[Unit], *, alone: Structure) -> tuple[Structure, list[KernelReason]]:
    """The structure of executions of one collective each; `alone` where all are of one kind."""
    kinds = {collective for collective, _ in units}
    if len(kinds) == 1:
        return alone, []
    if kinds != _PAIR:
        return Structure.SEVERAL, []
    pairing = pair(units)
    if pairing.differs is not None:
        return Structure.SEVERAL, [_reason(KernelReasonCode.PAIRS_DIFFER, pairing.differs)]
    reasons = [_identity(held)]
    if pairing.unknown:
        message = f"that the AllGathers fit the ReduceScatters is not proved: {_and(pairing.unknown)} not recorded"
        reasons.append(_reason(KernelReasonCode.PAIRS_UNPROVED, message))
    return Structure.DECOMPOSED, reasons


def _identity(held: Held) -> KernelReason:
    message = "that an AllGather gathers the very shards that a ReduceScatter left is in no capture"
    if held.num_other_kernels:
        ran = counted(held.num_other_kernels, "other kernel")
        message += f": the file has {ran}, which may have changed them in between, as an optimizer's step does"
    return _reason(KernelReasonCode.IDENTITY_UNPROVED, message)


def _of_copies(held: Held, copied: Sequence[Executed]) -> Judged:
    if held.num_skipped:
        reasons = (_skipped(held), _copies(copied))
        return Judged(structure=Structure.CANNOT_TELL, evidence=Evidence.CALLS, reasons=reasons)
    return Judged(structure=Structure.COPY_ENGINE, evidence=Evidence.MATCHED, reasons=(_copies(copied),))


def _skipped(held: Held) -> KernelReason:
    message = f"possible: a kernel is among the {counted(held.num_skipped, 'row')} of the file that could not be used"
    return _reason(KernelReasonCode.ROWS_SKIPPED, message)


def _of_calls(held: Held, calls: Sequence[Asked]) -> Judged:
    in_order = sorted(calls, key=lambda call: call.start_ns or 0)
    units = [(call.collective, call.metadata) for call in in_order]
    structure, reasons = _of_units(held, units, alone=Structure.SINGLE_CALL)
    backend = next((call.host_backend for call in calls if call.host_backend), held.backend)
    message = f"{backend} has no kernels: the evidence is the calls"
    reasons.append(_reason(KernelReasonCode.NO_DEVICE_KERNELS, message))
    return Judged(structure=structure, evidence=Evidence.CALLS, reasons=tuple(reasons))


def _why_none(held: Held, calls: Sequence[Asked]) -> tuple[KernelReason, ...]:
    """Every reason that may hold: one that certainly does is the only one."""
    sizes = {call.metadata.group_size for call in calls}
    if sizes == {1}:
        return (
            _reason(
                KernelReasonCode.GROUP_OF_ONE,
                "the group has one rank: there is nothing to send, and no kernel is right",
            ),
        )
    if not held.has_device_rows:
        return (_reason(KernelReasonCode.NOT_CAPTURED, "the capture has no GPU activity at all: kernels may have run"),)
    possible = [_skipped(held)] if held.num_skipped else []
    if sizes & {1, None} and not held.others_ran:
        possible.append(_reason(KernelReasonCode.GROUP_OF_ONE, "possible: a group of one rank runs no kernel"))
    if any(call.collective in _COPYABLE for call in calls):
        message = "possible: copy engines move data without a kernel (NCCL_CTA_POLICY, symmetric windows)"
        possible.append(_reason(KernelReasonCode.COPY_ENGINE, message))
    message = "possible: the calls were recorded into a CUDA graph, which runs elsewhere"
    possible.append(_reason(KernelReasonCode.GRAPH_REPLAY, message))
    message = "possible: the kernels were launched outside of the range, or ran outside of the capture"
    possible.append(_reason(KernelReasonCode.NOT_CAPTURED, message))
    return tuple(possible)


def _copies(copied: Sequence[Executed]) -> KernelReason:
    kinds = Counter(one.collective for one in copied)
    what = _and([f"{count} {kind}" for kind, count in kinds.items()])
    return _reason(KernelReasonCode.COPY_ENGINE, f"{what} ran as copies between devices, without a kernel")


def _by_name(kernels: Sequence[Executed]) -> KernelReason:
    number = sum(not one.from_caller for one in kernels)
    return _reason(
        KernelReasonCode.BY_NAME,
        f"of {number} of {len(kernels)} kernels no record says what was asked for: they are counted by name, and each "
        "may be a group",
    )


def _order(one: Executed) -> tuple[int, int]:
    return (one.launch.start_ns if one.launch else one.operation.start_ns, one.operation.start_ns)


def counted(count: int, what: str) -> str:
    """`1 kernel`, `2 kernels`, `2 launches`."""
    plural = "es" if what.endswith("ch") else "s"
    return f"{count} {what}{'' if count == 1 else plural}"


def _and(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _reason(code: KernelReasonCode, message: str) -> KernelReason:
    return KernelReason(code=code, message=message)
