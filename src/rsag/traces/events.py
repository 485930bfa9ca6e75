"""The events that every reader gives, whatever file they come from. Times are integers in nanoseconds.

A reader keeps what bears on communication and drops the rest while it reads: kernels that communicate, the launches
that they are joined to, ranges, and collectives as their callers asked for them. It joins nothing and judges nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from rsag.records.protocol import Choice


class Format(str, Enum):
    KINETO = "kineto"  # torch.profiler's Chrome JSON, plain or gzip
    NSYS_SQLITE = "nsys-sqlite"  # nsys export --type sqlite
    NSYS_CSV = "nsys-csv"  # nsys stats --report nvtx_kern_sum --format csv
    NCCL_LOG = "nccl-log"  # NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=TUNING,COLL
    FLIGHT_RECORDER = "flight-recorder"  # torch's dump, pickle or JSON


class OperationKind(str, Enum):
    KERNEL = "kernel"
    COPY = "copy"  # between devices or within one: how copy-engine collectives and groups of one run


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """What a caller said of one collective. None where the file does not say; counts are elements, not bytes."""

    collective: str | None = None  # as the file spells it
    in_numel: int | None = None
    out_numel: int | None = None
    dtype: str | None = None
    op: str | None = None
    group: str | None = None
    group_size: int | None = None
    group_ranks: tuple[int, ...] | None = None
    sequence: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOperation:
    """One kernel or copy on a device. `process` is None where the file does not tell it apart."""

    kind: OperationKind
    name: str
    start_ns: int
    end_ns: int
    process: int | None
    device: int
    stream: int
    correlation: int | None
    in_graph: bool = False  # ran as a node of a CUDA graph
    metadata: Metadata | None = None  # copied onto it by the profiler

    @property
    def is_between_devices(self) -> bool:
        """Whether it is a copy from one device to another, by the word that both profilers have for that."""
        return self.kind is OperationKind.COPY and "PtoP" in self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The host's call that started operations: correlation ids are unique within a process only."""

    process: int
    thread: int
    start_ns: int
    end_ns: int
    correlation: int
    api: str

    @property
    def is_graph(self) -> bool:
        return "GraphLaunch" in self.api


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphLaunch:
    """A CUDA graph that the capture did not expand: which kernels it ran is not in the file."""

    process: int | None
    device: int
    correlation: int | None
    start_ns: int
    end_ns: int


class RangeKind(str, Enum):
    MARK = "mark"  # the user's: NVTX of the default domain, record_function
    FRAMEWORK = "framework"  # torch's own operators and annotations
    LIBRARY = "library"  # NCCL's own NVTX domain


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A named stretch of one host thread, both ends on it."""

    name: str
    kind: RangeKind
    process: int
    thread: int
    start_ns: int
    end_ns: int


class CallSource(str, Enum):
    PARAM_COMMS = "record_param_comms"  # c10d's record of what it hands to the library
    C10D = "c10d"  # the operator that the caller called
    WORKER = "worker"  # what a backend's own thread says it ran
    LIBRARY = "library"  # the library's own range or log
    FLIGHT_RECORDER = "flight-recorder"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One collective as somebody on the host called it, in the order of the file."""

    source: CallSource
    metadata: Metadata
    process: int | None
    thread: int | None
    start_ns: int | None
    end_ns: int | None
    state: str | None = None  # the flight recorder's: scheduled, started, completed
    rank: int | None = None  # the caller's in the group, where one file holds the calls of several


@dataclass(frozen=True, slots=True, kw_only=True)
class SummedKernels:
    """One row of nvtx_kern_sum: already attributed and added up by nsys, over all devices of the process."""

    range: str
    style: str
    process: int | None
    thread: int | None
    range_instances: int
    count: int
    total_ns: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """One thing in the file that could not be used, and where: bytes from the start (decompressed), or a row."""

    offset: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """What was skipped: how many of how many, and the first few of them."""

    num_skipped: int = 0
    num_seen: int = 0
    first: tuple[Skipped, ...] = ()


class LimitCode(str, Enum):
    """A question that this file cannot answer."""

    NO_DEVICE_ROWS = "no-device-rows"  # the capture has no GPU activity at all
    NO_RANGES = "no-ranges"
    RANGES_DROPPED = "ranges-dropped"  # too many in which nothing communicated
    NO_LAUNCHES = "no-launches"
    SHARED_IDS = "shared-ids"  # more kernels than launches have one correlation id
    NO_KERNEL_TABLE = "no-kernel-table"
    GRAPHS_NOT_EXPANDED = "graphs-not-expanded"
    NO_DEVICES = "no-devices"  # sums over all devices
    TRUNCATED = "truncated"
    NO_COUNTS = "no-counts"  # the caller's counts and dtypes are not recorded
    NO_OPERATORS = "no-operators"  # the reduction operator is not recorded
    NOT_AS_CALLED = "not-as-called"  # what a backend ran, which need not be what was called
    NO_CHOICES = "no-choices"  # the library does not say which algorithm and protocol it chose


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    code: LimitCode
    message: str  # what cannot be answered, and what would answer it


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Who wrote the file, as far as it says."""

    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    library_version: str | None = None
    tool: str | None = None  # product and schema version


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """All that was read from one file."""

    source: str
    format: Format
    origin: Origin = field(default_factory=Origin)
    operations: tuple[DeviceOperation, ...] = ()
    launches: tuple[Launch, ...] = ()
    graph_launches: tuple[GraphLaunch, ...] = ()
    ranges: tuple[Range, ...] = ()
    calls: tuple[Call, ...] = ()
    choices: tuple[Choice, ...] = ()
    sums: tuple[SummedKernels, ...] = ()
    num_other_kernels: int = 0  # kernels that compute
    limits: tuple[Limit, ...] = ()
    quarantine: Quarantine = field(default_factory=Quarantine)
