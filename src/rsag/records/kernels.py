"""What is known of a communication kernel, and what it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from rsag.records.execution import Probe
from rsag.records.latency import PredictionOutcome
from rsag.records.protocol import Choice


class ClaimAbout(str, Enum):
    COLLECTIVE = "collective"
    OPERATOR = "operator"  # the reduction operator
    DTYPE = "dtype"
    ALGORITHM = "algorithm"  # ring, tree, NVLS, ...
    PROTOCOL = "protocol"  # LL, LL128, SIMPLE
    METHOD = "method"  # how a kernel on mapped memory moves data: by loads, stores, multicast


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One thing said of a kernel: `value` with what it rests on, or None with the reason why it cannot be said."""

    about: ClaimAbout
    value: str | None
    reason: str


class Rule(str, Enum):
    """How a kernel is attributed to a range."""

    SAME_THREAD = "same-thread"  # its launch lies in the range, on the range's own thread: Nsight's rule
    ANY_THREAD = "any-thread"  # its launch starts within the range, on any thread of the process: weaker evidence


class Structure(str, Enum):
    """How the collectives that were asked for in a range were executed on a device."""

    SINGLE_KERNEL = "single-kernel"  # one kernel for each collective, all of one kind
    DECOMPOSED = "decomposed"  # ReduceScatters, each followed by an AllGather that fits it, no other collective
    GROUPED = "grouped"  # fewer kernels than collectives: a kernel ran a group of them, or a coalesced call
    COPY_ENGINE = "copy-engine"  # no kernel: copies between devices
    NO_KERNEL = "no-kernel"  # none in the file; the reasons say why that may be
    SINGLE_CALL = "single-call"  # a backend without kernels: calls of one kind
    SEVERAL = "several"  # more than one kind, or several kernels for a call, and no decomposition
    NOTHING = "nothing"  # no collective was asked for and none ran, by the rule that attributes
    MIXED = "mixed"  # instances of the range differ, or some calls have a kernel and others none
    CANNOT_TELL = "cannot-tell"


class Evidence(str, Enum):
    """What a structure rests on, the strongest first."""

    MATCHED = "matched"  # every kernel with the call that asked for it
    NAMES = "names"  # kernels by their names and order: what was asked for is not in the file
    CALLS = "calls"  # calls alone
    NOTHING = "nothing"


class KernelReasonCode(str, Enum):
    GROUP_OF_ONE = "group-of-one"
    COPY_ENGINE = "copy-engine"
    GRAPHS_NOT_EXPANDED = "graphs-not-expanded"
    NOT_CAPTURED = "not-captured"
    ROWS_SKIPPED = "rows-skipped"
    NO_DEVICE_KERNELS = "no-device-kernels"
    BACKEND_RAN_OTHER = "backend-ran-other"
    NAME_AND_CALLER_DIFFER = "name-and-caller-differ"
    NAME_AND_LOG_DIFFER = "name-and-log-differ"
    UNKNOWN_COLLECTIVE = "unknown-collective"
    UNKNOWN_LAUNCH = "unknown-launch"
    GRAPH_REPLAY = "graph-replay"
    OTHER_THREADS = "other-threads"
    WEAKER_RULE = "weaker-rule"
    CALLS_WITHOUT_KERNEL = "calls-without-kernel"
    MORE_KERNELS_THAN_CALLS = "more-kernels-than-calls"
    GROUP = "group"
    COALESCED = "coalesced"
    PAIRS_DIFFER = "pairs-differ"
    PAIRS_UNPROVED = "pairs-unproved"
    IDENTITY_UNPROVED = "identity-unproved"
    BY_NAME = "by-name"
    SUMS = "sums"
    INSTANCES_DIFFER = "instances-differ"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelReason:
    code: KernelReasonCode
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """Kernels of one name. `library` is whose kernel the name says it is, NCCL or another's; `choices` are the
    library's own word on them, from a log that was read along."""

    name: str
    library: str | None
    count: int
    total_ns: int
    claims: tuple[Claim, ...]
    choices: tuple[Choice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeRow:
    """All instances of one range on one thread, and what they ran on one device.

    `collectives` counts the device's kernels by what they ran, `calls` what was asked for in the range, on whatever
    device; `copies` counts copies that ran a collective. `unattributed` are kernels that other threads of the process
    launched while the range was open, `unattributed_calls` collectives that they asked for. `device` is None where
    nothing ran on one, or the file adds devices up.
    """

    source: int
    range: str
    pid: int | None
    tid: int | None
    device: int | None
    instances: int
    structure: Structure
    evidence: Evidence
    collectives: dict[str, int]
    calls: dict[str, int]
    kernels: tuple[KernelRow, ...]
    copies: int
    unattributed: int
    unattributed_calls: int
    reasons: tuple[KernelReason, ...]

    @property
    def ran(self) -> dict[str, int]:
        """Kernels by what they ran; on a backend without kernels the calls."""
        return self.calls if self.device is None else self.collectives


def in_words(counts: Mapping[str, int]) -> str:
    """`5 reduce_scatter + 5 all_gather`."""
    return " + ".join(f"{count} {name}" for name, count in counts.items()) or "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """All communication kernels of one device in one file. `unattributed` of them are in none of the ranges shown;
    `unknown` of these have no launch in the file, so that nobody can say where they belong."""

    source: int
    pid: int | None
    device: int | None
    collectives: dict[str, int]
    kernels: tuple[KernelRow, ...]
    unattributed: int
    unknown: int
    graph_launches: int
    reasons: tuple[KernelReason, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRow:
    """Collectives that were asked for alike. `ran_as`: what the backend's own threads say they ran for them.

    `rank` is the caller's where one file holds the calls of several ranks.
    """

    collective: str
    count: int
    rank: int | None
    group: str | None
    group_size: int | None
    dtype: str | None
    ran_as: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceRow:
    count: int
    choice: Choice


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRow:
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedRow:
    source: int
    offset: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineRows:
    """What could not be used, of how much, over all files; the first few of each file."""

    num_skipped: int
    num_seen: int
    first: tuple[SkippedRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRow:
    """One file that was read: who wrote it, what it asked for, and what it cannot answer."""

    path: str
    format: str
    rank: int | None
    world_size: int | None
    backend: str | None
    library_version: str | None
    tool: str | None
    num_other_kernels: int
    calls: tuple[CallRow, ...]
    choices: tuple[ChoiceRow, ...]
    limits: tuple[LimitRow, ...]


class Agreement(str, Enum):
    AGREE = "agree"
    DIFFER = "differ"
    CANNOT_TELL = "cannot-tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementRow:
    """Whether all ranks did the same in the ranges of one name, or in one group by the calls that dumps hold.

    `message` has the first difference, with what each rank has there. `not_compared` are aspects that some step lacks.
    """

    range: str | None
    group: str | None
    num_ranks: int
    agreement: Agreement
    message: str
    not_compared: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRow:
    """Collectives of one kind, each seen on several ranks: waiting for the last rank told from moving data.

    Of one collective the transfer is from the last start to the last end, and a rank waits from its own start to the
    last. `transfer_ns` and `waiting_ns` add up the transfers and, for each collective, the longest wait. The rest
    describes the collective with the longest wait: its place in the order (from 0), the rank that came last, the
    kernel's shortest and longest duration, and how far apart the ends are.
    """

    collective: str
    group: str | None
    num_ranks: int
    count: int
    transfer_ns: int
    waiting_ns: int
    number: int
    last_rank: int
    shortest_ns: int
    longest_ns: int
    ends_within_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelsDocument:
    """What captures show of the collectives that ran. `notes` are findings about all files together."""

    schema: ClassVar[str] = "kernels"
    version: ClassVar[int] = 1

    rule: Rule
    sources: tuple[SourceRow, ...]
    ranges: tuple[RangeRow, ...]
    ranges_left_out: int
    devices: tuple[DeviceRow, ...]
    agreement: tuple[AgreementRow, ...]
    transfers: tuple[TransferRow, ...]
    notes: tuple[str, ...]
    quarantine: QuarantineRows

    def kernels_in(self, name: str, *, device: int | None = None, source: int | None = None) -> dict[str, int]:
        """How many kernels of each collective ran in the ranges called `name`, on one device and in one file or all."""
        total: dict[str, int] = {}
        for row in self.ranges:
            if row.range == name and device in (None, row.device) and source in (None, row.source):
                for collective, count in row.collectives.items():
                    total[collective] = total.get(collective, 0) + count
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeVerdict:
    """What one probe of a run shows of its marked ranges, beside what the ledger predicts of each device or rank.

    `bytes` is the full payload M of each of the `calls` in a range.

    `predicted` counts collectives by range. Where the backend has kernels they are what is compared, else the calls.
    """

    probe: Probe
    bytes: int
    calls: int
    outcome: PredictionOutcome
    predicted: dict[str, dict[str, int]]
    ranges: tuple[RangeRow, ...]
    reasons: tuple[str, ...]
