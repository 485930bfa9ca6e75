"""What is kept of a block of a Kineto trace: rows in nanoseconds since the file's base, which may stand at its end.

Kept are what communicates on a device, every call that may have launched it, ranges, and collectives as torch's
operators and annotations tell them. A call may stand before or after what it launched, and a range before or after what
it encloses, so that all of them are kept until the file has ended: 32 bytes for each call of the CUDA API, 24 and its
name for each range.
"""

from __future__ import annotations

import functools
import pickle
import re
import sys
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import msgspec

from rsag.traces.blocks import Block, Event
from rsag.traces.events import CallSource, Metadata, OperationKind, RangeKind
from rsag.traces.kernel_names import is_communication
from rsag.traces.kineto_values import InvalidRowError, arguments, collective_of_operator, collective_of_record, times
from rsag.traces.skips import Skips, int64, printable

_COPIES = ("DtoD", "PtoP", "DeviceToDevice")
_OPERATORS = ("c10d::", "_c10d_functional", "symm_mem::")
_BACKENDS = ("nccl:", "gloo:", "ucc:", "mpi:", "xccl:", "rccl:")
_ANNOTATIONS_OF_TORCH = (*_BACKENDS, "FSDP::", "DistributedDataParallel.", "Optimizer.", "enumerate(DataLoader)")
_NO_COLLECTIVES = ("wait", "init")  # record_param_comms records these as well
_AUTOGRAD_NODE = re.compile(r".*Backward\d*")


class DeviceRow(NamedTuple):
    kind: OperationKind
    name: str
    start_ns: int
    end_ns: int
    device: int
    stream: int
    correlation: int | None
    in_graph: bool
    metadata: Metadata | None


class CollectiveRow(NamedTuple):
    """A collective as it was called; its range is among the ranges."""

    source: CallSource
    metadata: Metadata
    process: int
    thread: int
    start_ns: int
    end_ns: int


RangeLabel = tuple[int, int, RangeKind, str]
"""Process, thread, kind, name."""


@dataclass(slots=True)
class Rows:
    """What is kept of the block at an offset.

    `calls` has correlation id, start, end and the number of a kind; `ranges` start, end and the number of a label.
    """

    offset: int
    device: list[DeviceRow] = field(default_factory=list)
    collectives: list[CollectiveRow] = field(default_factory=list)
    calls: list[int] | array[int] = field(default_factory=list)  # an array once it is full, which takes less memory
    call_kinds: dict[tuple[int, int, str], int] = field(default_factory=dict)  # process, thread, API
    ranges: list[int] | array[int] = field(default_factory=list)
    range_labels: dict[RangeLabel, int] | bytes = field(default_factory=dict)  # pickled once it is full: names are many
    num_other_kernels: int = 0
    num_device_rows: int = 0

    def add_range(self, label: RangeLabel, start_ns: int, end_ns: int) -> None:
        if isinstance(self.range_labels, dict):
            self.ranges.extend((start_ns, end_ns, self.range_labels.setdefault(label, len(self.range_labels))))

    def pack(self) -> None:
        """Nothing more comes."""
        self.calls, self.ranges = array("q", self.calls), array("q", self.ranges)
        self.range_labels = pickle.dumps(list(self.range_labels))

    def labels(self) -> list[RangeLabel]:
        """What the numbers in `ranges` stand for, once nothing more comes."""
        return pickle.loads(self.range_labels) if isinstance(self.range_labels, bytes) else list(self.range_labels)


def rows_of(block: Block, skips: Skips) -> Rows:
    """What is kept of one block; rows that cannot be used go to `skips`."""
    rows = Rows(block.offset)
    for index, event in enumerate(block.events):
        if take := _TAKE.get(event.cat):
            try:
                take(rows, event)
            except InvalidRowError as invalid:
                reason = f"{event.cat} {event.name[:80]!r}: {invalid}"
                skips.skip(functools.partial(block.offset_of, index), reason)
    rows.pack()
    return rows


class _CallArguments(msgspec.Struct, gc=False):
    correlation: Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)] | None = None


_CALL_ARGUMENTS = msgspec.json.Decoder(_CallArguments)


# -- rows of devices -----------------------------------------------------------------------------------------------


def _kernel(rows: Rows, event: Event) -> None:
    rows.num_device_rows += 1
    start_ns, end_ns = times(event)
    if start_ns == end_ns:
        raise InvalidRowError("zero duration")
    if is_communication(event.name):
        _on_device(rows, OperationKind.KERNEL, event, start_ns, end_ns)
    else:
        rows.num_other_kernels += 1


def _copy(rows: Rows, event: Event) -> None:
    rows.num_device_rows += 1
    start_ns, end_ns = times(event)
    if any(word in event.name for word in _COPIES):
        _on_device(rows, OperationKind.COPY, event, start_ns, end_ns)


def _other_device_row(rows: Rows, _: Event) -> None:
    rows.num_device_rows += 1


def _on_device(rows: Rows, kind: OperationKind, event: Event, start_ns: int, end_ns: int) -> None:
    args = arguments(event)
    device, stream = int64(args.get("device", event.pid)), int64(args.get("stream", event.tid))
    if device is None or stream is None:
        raise InvalidRowError("no device or no stream")
    rows.device.append(
        DeviceRow(
            kind=kind,
            name=sys.intern(printable(event.name)),
            start_ns=start_ns,
            end_ns=end_ns,
            device=device,
            stream=stream,
            correlation=int64(args.get("correlation")) or None,
            in_graph=bool(int64(args.get("graph node id"))),
            metadata=collective_of_record(args),
        )
    )


# -- rows of the host ----------------------------------------------------------------------------------------------


def _call(rows: Rows, event: Event) -> None:
    start_ns, end_ns = times(event)
    process, thread = _host_thread(event)
    try:
        correlation = _CALL_ARGUMENTS.decode(event.args).correlation if event.args else None
    except (msgspec.DecodeError, RecursionError):
        raise InvalidRowError("a correlation id that is no integer of 64 bits") from None
    if correlation:
        number = rows.call_kinds.setdefault((process, thread, event.name), len(rows.call_kinds))
        rows.calls.extend((correlation, start_ns, end_ns, number))


def _operator(rows: Rows, event: Event) -> None:
    if event.name == "record_param_comms":
        metadata = collective_of_record(arguments(event))
        if metadata is None:
            _on_host(rows, event, RangeKind.FRAMEWORK)
        elif metadata.collective not in _NO_COLLECTIVES:
            _on_host(rows, event, RangeKind.FRAMEWORK, CallSource.PARAM_COMMS, metadata)
    elif event.name.startswith("c10d::"):
        metadata = collective_of_operator(event.name, arguments(event))
        _on_host(rows, event, RangeKind.FRAMEWORK, CallSource.C10D, metadata)
    elif event.name.startswith(_OPERATORS):
        _on_host(rows, event, RangeKind.FRAMEWORK)


def _old_operator(rows: Rows, event: Event) -> None:
    """In 2021 ranges were operators among operators, to be told by their names only."""
    if event.name.startswith(_BACKENDS):
        _annotation(rows, event)
    elif "::" in event.name or event.name == "record_param_comms":
        _operator(rows, event)
    elif not _AUTOGRAD_NODE.fullmatch(event.name):
        _annotation(rows, event)


def _annotation(rows: Rows, event: Event) -> None:
    if event.name.startswith(_BACKENDS):
        metadata = collective_of_operator(event.name, arguments(event))
        _on_host(rows, event, RangeKind.FRAMEWORK, CallSource.WORKER, metadata)
    else:
        of_torch = event.name.startswith(_ANNOTATIONS_OF_TORCH)
        _on_host(rows, event, RangeKind.FRAMEWORK if of_torch else RangeKind.MARK)


def _on_host(
    rows: Rows, event: Event, kind: RangeKind, source: CallSource | None = None, metadata: Metadata | None = None
) -> None:
    start_ns, end_ns = times(event)
    process, thread = _host_thread(event)
    rows.add_range((process, thread, kind, printable(event.name)), start_ns, end_ns)
    if source is not None:
        rows.collectives.append(CollectiveRow(source, metadata or Metadata(), process, thread, start_ns, end_ns))


def _host_thread(event: Event) -> tuple[int, int]:
    process, thread = event.pid, event.tid
    if isinstance(process, int) and isinstance(thread, int):
        return process, thread
    raise InvalidRowError("no process or no thread")


# By category: today's, and those of 2021. What has another one does not bear on communication.
_TAKE: dict[str, Callable[[Rows, Event], None]] = {
    "kernel": _kernel,
    "Kernel": _kernel,
    "gpu_memcpy": _copy,
    "Memcpy": _copy,
    "gpu_memset": _other_device_row,
    "Memset": _other_device_row,
    "cuda_runtime": _call,
    "cuda_driver": _call,
    "Runtime": _call,
    "cpu_op": _operator,
    "Operator": _old_operator,
    "user_annotation": _annotation,
}
