"""What the latency and wire experiments plan, record and conclude. Times are integers in nanoseconds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from rsag.errors import UsageError
from rsag.reduction import DType, ReduceOp
from rsag.stats import Decision, Stop, balanced_order, decide


class Clock(str, Enum):
    """What a time means. Rows of different clocks, or of different calls per timing, are never compared."""

    CPU = "cpu"  # monotonic clock around one call, after a barrier
    EAGER = "eager"  # CUDA events around back-to-back host calls, divided by their number
    GRAPH = "graph"  # CUDA events around the replay of a graph of calls, divided by their number


class Buffers(str, Enum):
    """The kind of memory that an arm's tensors lie in. Arms of unlike buffers are timed together, never compared."""

    PLAIN = "plain"  # torch's caching allocator
    REGISTERED = "registered"  # NCCL's allocator, known to the communicator beforehand
    SYMMETRIC = "symmetric"  # a window that all ranks registered together: NCCL has kernels of its own for it


class Gate(str, Enum):
    """The rule that accepts or refuses a ratio."""

    ROUNDS = "rounds"  # exact signed-rank interval over rounds, at looks that are paid for
    CV = "cv"  # the chapter's: a ratio of medians only where both coefficients of variation are at most 5 %


class Order(str, Enum):
    """How the arms of a cycle follow each other."""

    BALANCED = "balanced"  # blocks of a seeded random permutation and its mirror image
    ALTERNATING = "alternating"  # the chapter's: even cycles forwards, odd ones backwards


class ArmRole(str, Enum):
    """What an arm is in the comparison."""

    DIRECT = "direct"  # the reference
    CANDIDATE = "candidate"
    CONTROL = "control"  # the direct arm a second time: a difference there is the harness's
    NULL = "null"  # an empty call or graph: the clock's own cost

    @property
    def is_compared(self) -> bool:
        """Whether its times are set against the direct arm's."""
        return self in (ArmRole.CANDIDATE, ArmRole.CONTROL)


def named(composition: str, buffers: Buffers, settings: Mapping[str, str], *more: str) -> str:
    """How an arm is called: `rs_ag_in_place`, or `rs_ag_in_place (registered, NCCL_ALGO=Ring)` where it is unusual."""
    extras = [*unusual(buffers, settings), *more]
    return f"{composition} ({', '.join(extras)})" if extras else composition


def unusual(buffers: Buffers, settings: Mapping[str, str]) -> list[str]:
    """What is not plain, or not the library's own choice, word by word."""
    kind = [] if buffers is Buffers.PLAIN else [buffers.value]
    return kind + [f"{key}={value}" for key, value in settings.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedArm:
    """One arm of every case. The composition of a NULL arm is empty."""

    role: ArmRole
    composition: str
    buffers: Buffers = Buffers.PLAIN
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One question: `bytes` is the full logical payload M, `calls` the calls of one timing."""

    bytes: int
    dtype: DType
    op: ReduceOp
    clock: Clock
    calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyPlan:
    """Cases x arms. `blocks` of two cycles make a round, after `warmup_cycles` that are recorded and not used.

    A round's cycles are thus `warmup_cycles + 2 * blocks`, the warm-up first. `margin` is the equivalence margin as a
    ratio (0.01 is 1 %), None for no claim of equivalence. `max_rounds` is the budget: the looks of `rsag.stats.LOOKS`
    up to it are made. `precisely`: a direction alone does not end a case, its interval must be within 2 % as
    well. `claimable`: nor does a direction that would not survive Holm's correction for all of the plan's comparisons
    (the earliest plans did not ask for it). The seed of round r of case c is `round_seed(plan.seed, c, r)`.
    """

    cases: tuple[Case, ...]
    arms: tuple[TimedArm, ...]
    blocks: int
    warmup_cycles: int
    max_rounds: int
    gate: Gate
    order: Order
    margin: float | None
    precisely: bool
    wire_cases: tuple[Case, ...]
    claimable: bool = False

    def reference(self, arm: int) -> int:
        """The index of the arm that `arm` is compared with: the direct one in the same buffers and settings."""
        own = self.arms[arm]
        for index, one in enumerate(self.arms):
            if one.role is ArmRole.DIRECT and (one.buffers, one.settings) == (own.buffers, own.settings):
                return index
        raise UsageError(
            f"the plan has nothing to compare {own.composition} in {own.buffers.value} buffers with",
            do="give it a direct arm of the same buffers and settings",
        )

    @property
    def log_margin(self) -> float | None:
        """`margin` as a log-ratio."""
        return None if self.margin is None else math.log1p(self.margin)

    def num_comparisons(self, role: ArmRole) -> int:
        """Of arms of this role with the direct one, in all cases: the family that a direction must survive to stop."""
        return len(self.cases) * sum(arm.role is role for arm in self.arms) if self.claimable else 1


def decide_arm(plan: LatencyPlan, role: ArmRole, values: Sequence[float]) -> Decision:
    """What the values of some rounds decide about an arm of this role: for ranks and judge alike."""
    return decide(values, plan.log_margin, precisely=plan.precisely, family=plan.num_comparisons(role))


def round_seed(seed: int, case: int, round_number: int) -> int:
    """Where a round's random choices start, on all ranks alike."""
    return (seed * 1_000_003 + case) * 1_000_003 + round_number


def cycle_order(plan: LatencyPlan, seed: int, case: int, round_number: int) -> tuple[tuple[int, ...], ...]:
    """The arms of each cycle of a round, warm-up first, in the order they ran: for ranks and judge alike."""
    num_cycles = plan.warmup_cycles + 2 * plan.blocks
    num_arms = len(plan.arms)
    if plan.order is Order.ALTERNATING:
        forwards = tuple(range(num_arms))
        first_counted = plan.warmup_cycles % 2
        return tuple(forwards if cycle % 2 == first_counted else forwards[::-1] for cycle in range(num_cycles))
    num_blocks = -(-plan.warmup_cycles // 2) + plan.blocks
    return balanced_order(num_arms, num_blocks, round_seed(seed, case, round_number))[-num_cycles:]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRow:
    """One rank's round of one case, written after it. `ns[arm][cycle]` is the time of one call.

    `started_us[cycle]` counts from the round's start on CLOCK_MONOTONIC; `wrong` are elements that differ from the
    oracle. `took_us` is the round from its first cycle on; `held_down_us` how much of it the device's clocks were held
    down, by cause: empty where they were not, or where nothing tells. The order of arms follows from the plan's seed:
    `cycle_order`.
    """

    kind: Literal["round"] = "round"
    case: int
    round: int
    start_ns: int
    ns: tuple[tuple[int, ...], ...]
    started_us: tuple[int, ...]
    wrong: tuple[int, ...]
    took_us: int = 0
    held_down_us: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookRow:
    """What rank 0 decided at a look: per arm, in the order of the plan, why it was done with (None: not yet).

    `ratios` are the arms' (estimate, low, high) over the direct arm at that look, for whoever watches.
    """

    kind: Literal["look"] = "look"
    case: int
    rounds: int
    stops: tuple[Stop | None, ...]
    went_on: bool
    ratios: tuple[tuple[float, float, float] | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseEnd:
    """Why a case was not measured at all."""

    kind: Literal["case-end"] = "case-end"
    case: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WireRow:
    """What one rank's counters say of `calls` calls: bytes per call, None where they cannot be read."""

    kind: Literal["wire"] = "wire"
    case: int
    arm: int
    calls: int
    counter: str
    sent_bytes: float | None
    received_bytes: float | None
    reason: str


# --------------------------------------------------------------------------------------------------- the verdict's rows


class TimeOutcome(str, Enum):
    FASTER = "faster"
    SLOWER = "slower"
    EQUIVALENT = "equivalent"
    INCONCLUSIVE = "inconclusive"
    INVALID = "invalid"


class ReasonCode(str, Enum):
    """Why an outcome is what it is."""

    AA_DIFFERS = "aa-differs"  # two identical arms come out different: harness asymmetry
    WRONG_RESULT = "wrong-result"
    NO_RECORDS = "no-records"
    BAD_TIMES = "bad-times"  # negative, zero or missing
    DECISION_DIFFERS = "decision-differs"  # the judge does not come to the ranks' decision
    TOO_FEW_ROUNDS = "too-few-rounds"
    HOLDS_ONE = "holds-one"  # precise, and still no direction
    SKEW = "skew"
    DRIFT = "drift"
    OUTLIERS = "outliers"
    BIMODAL = "bimodal"
    THROTTLED = "throttled"  # a device's clocks were held down
    ORDER_EFFECT = "order-effect"
    UNSTABLE_CV = "unstable-cv"
    PROTOCOLS_DIFFER = "protocols-differ"
    GLOO_REDUCE_SCATTER = "gloo-reduce-scatter"  # its ReduceScatter moves a whole AllReduce
    NOT_MEASURED = "not-measured"
    PROTOCOL_LL = "protocol-ll"  # the bytes on the wire are LL's: a flag beside every word
    PROTOCOL_LL128 = "protocol-ll128"  # and here LL128's: 8 bytes of flags in every 128
    HEADERS = "headers"  # a message so small that its headers outweigh it
    BYTES_DIFFER = "bytes-differ"  # and nothing known explains it
    NOT_PREDICTED = "not-predicted"
    GLOO_REDUCE_SCATTER_CLONE = "gloo-reduce-scatter-clone"  # a copy of the whole input
    GLOO_ALL_GATHER_OUTPUT = "gloo-all-gather-output"  # a flat output of its own, copied from afterwards
    ALLOCATOR_ROUNDING = "allocator-rounding"  # blocks are larger than what was asked for
    UNEXPLAINED = "unexplained"  # memory that nothing known accounts for


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    code: ReasonCode
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedCost:
    """What the ledger says of one call on rank 0, on an ideal ring: steps of the longest chain, bytes sent."""

    steps: int
    sent_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyRow:
    """One arm of one case. `ratio` is over the direct arm, None where it was refused; `interval` is shown all the same.

    `median_us` and the others describe per-cycle maxima over ranks, in all rounds measured; `min_median_us` the minima,
    so that the difference is skew. All are None where there are no times to describe. `gbps` is M over the median,
    10^9 bytes per second (0 for the null arm, which moves nothing); `ring_gbps` the ring-equivalent bus bandwidth.
    `rounds` are those that the decision rests on, `round_values` their log-ratios: empty where there was no decision.
    `cv_ratio` is the chapter's rule on the same samples, None where it refuses or the row is invalid.
    """

    bytes: int
    dtype: DType
    op: ReduceOp
    composition: str
    role: ArmRole
    buffers: Buffers
    settings: dict[str, str]
    clock: Clock
    calls: int
    outcome: TimeOutcome | None
    ratio: float | None
    interval: tuple[float, float] | None
    median_us: float | None = None
    p95_us: float | None = None
    p99_us: float | None = None
    mean_us: float | None = None
    cv: float | None = None
    min_median_us: float | None = None
    gbps: float | None = None
    ring_gbps: float | None = None
    rounds: int
    stop: Stop | None
    round_values: tuple[float, ...]
    cv_ratio: float | None
    predicted: PredictedCost | None
    protocols: tuple[str, ...] = ()
    reasons: tuple[Reason, ...]


class PredictionOutcome(str, Enum):
    AGREES = "agrees"
    DIFFERS = "differs"
    CANNOT_TELL = "cannot-tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class WireVerdict:
    """Bytes that one rank sent per call, at a payload of `bytes`: the ledger's on an ideal ring, and the counter's."""

    composition: str
    buffers: Buffers = Buffers.PLAIN
    rank: int
    bytes: int
    predicted_bytes: float | None
    measured_bytes: float | None
    outcome: PredictionOutcome
    reasons: tuple[Reason, ...]
