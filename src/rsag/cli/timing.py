"""The options of `rsag run` that say what is timed, and how they become a plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rsag.cli.options import parse_op
from rsag.errors import UsageError, unknown_name
from rsag.units import KIB, MIB, parse_bytes

if TYPE_CHECKING:
    from rsag.records.execution import KernelsPlan
    from rsag.records.latency import LatencyPlan
    from rsag.records.memory import MemoryPlan
    from rsag.records.plan import Backend


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A whole run's sizes under one name; None is the default of the backend."""

    memory_bytes: int
    kernels_bytes: int | None


PRESETS = {
    "chapter": Preset(memory_bytes=256 * MIB, kernels_bytes=64 * MIB),
    "demo": Preset(memory_bytes=16 * MIB, kernels_bytes=None),
}
DEMO_SIZES = (64 * KIB, MIB, 16 * MIB)

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What was asked for, as it was typed; None is the default."""

    preset: str | None
    sizes: str | None
    compositions: str | None
    clocks: str | None
    buffers: str
    dtype: str
    op: str
    gate: str
    rounds: int
    margin: str | None
    precise: bool

    @property
    def is_default(self) -> bool:
        return self == DEFAULT

    @property
    def is_what_alone(self) -> bool:
        """Whether nothing is said of how it is timed, only what is run."""
        what = {name: getattr(DEFAULT, name) for name in ("preset", "sizes", "compositions", "dtype", "op")}
        return dataclasses.replace(self, **what) == DEFAULT


DEFAULT = Timing(
    preset=None,
    sizes=None,
    compositions=None,
    clocks=None,
    buffers="plain",
    dtype="float32",
    op="sum",
    gate="rounds",
    rounds=40,
    margin=None,
    precise=False,
)

_OPTIONS = (
    click.option("--preset", metavar="NAME", help="chapter: sizes and schedule of the course this grew from; demo."),
    click.option(
        "--bytes",
        "sizes",
        metavar="SIZES",
        help="Payloads to time: 64KiB,1MiB,256MiB. Memory, and kernels without times, take the largest.",
    ),
    click.option("--composition", "compositions", metavar="NAMES", help="Compositions to time against AllReduce."),
    click.option("--clock", "clocks", metavar="NAMES", help="graph, eager (CUDA) or cpu."),
    click.option(
        "--buffers",
        metavar="NAMES",
        default=DEFAULT.buffers,
        show_default=True,
        help="plain, registered or symmetric (NCCL): each compared with AllReduce in the same.",
    ),
    click.option("--dtype", default=DEFAULT.dtype, show_default=True, help="Of the timed payload."),
    click.option("--op", default=DEFAULT.op, show_default=True, help="Of the timed reduction."),
    click.option("--gate", default=DEFAULT.gate, show_default=True, help="rounds: exact intervals; cv: CV <= 5 %."),
    click.option("--rounds", type=int, default=DEFAULT.rounds, show_default=True, help="The budget of each case."),
    click.option("--margin", metavar="PERCENT", help="Equivalence margin, for example 1%."),
    click.option("--precise", is_flag=True, help="Go on until an interval is within 2 %, direction or not."),
)


def timing_options(command: F) -> F:
    """The options above, given to the command as one `timing`."""

    def gathered(**values: Any) -> Any:
        names = Timing.__dataclass_fields__
        timing = Timing(**{name: values.pop(name) for name in names})
        return command(timing=timing, **values)

    gathered.__doc__ = command.__doc__
    gathered.__name__ = command.__name__
    decorated: Any = gathered
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    decorated.__click_params__ = getattr(command, "__click_params__", []) + decorated.__click_params__
    result: F = decorated
    return result


def require_preset(timing: Timing) -> None:
    """Raise UsageError for a preset that there is not, or that other options would change."""
    if timing.preset is None:
        return
    if timing.preset not in PRESETS:
        raise unknown_name("preset", timing.preset, PRESETS)
    if dataclasses.replace(timing, preset=None) != DEFAULT:
        raise UsageError("a preset says all of what is timed", do="leave it out, or the other options of timing")


def plan_timing(timing: Timing, world_size: int, backend: Backend) -> LatencyPlan:
    """What `timing` asks to be timed on these ranks."""
    from rsag.plan.latency import plan_chapter_latency, plan_latency
    from rsag.records.latency import Buffers, Clock, Gate
    from rsag.reduction import DType

    if timing.preset == "chapter":
        return plan_chapter_latency(world_size=world_size, backend=backend)
    if timing.preset is not None:
        return plan_latency(world_size=world_size, backend=backend, sizes=DEMO_SIZES)
    clocks = None if timing.clocks is None else [_member(Clock, "clock", one) for one in _split(timing.clocks)]
    return plan_latency(
        world_size=world_size,
        backend=backend,
        sizes=None if timing.sizes is None else [parse_bytes(one) for one in _split(timing.sizes)],
        candidates=None if timing.compositions is None else _split(timing.compositions),
        clocks=clocks,
        buffers=[_member(Buffers, "kind of buffers", one) for one in _split(timing.buffers)],
        dtype=_member(DType, "dtype", timing.dtype),
        op=parse_op(timing.op),
        gate=_member(Gate, "gate", timing.gate),
        max_rounds=timing.rounds,
        margin=None if timing.margin is None else _percent(timing.margin),
        precisely=timing.precise,
    )


def plan_memory_of(timing: Timing, world_size: int, backend: Backend) -> MemoryPlan:
    """What `timing` asks to be run, at the largest size: compositions beside AllReduce, without its clocks."""
    from rsag.plan.memory import plan_memory
    from rsag.reduction import DType

    if timing.preset is not None:
        return plan_memory(world_size=world_size, backend=backend, size=PRESETS[timing.preset].memory_bytes)
    return plan_memory(
        world_size=world_size,
        backend=backend,
        size=None if timing.sizes is None else max(parse_bytes(one) for one in _split(timing.sizes)),
        compositions=None if timing.compositions is None else ["all_reduce", *_split(timing.compositions)],
        dtype=_member(DType, "dtype", timing.dtype),
        op=parse_op(timing.op),
    )


def plan_kernels_of(timing: Timing, world_size: int, backend: Backend, *, with_times: bool) -> KernelsPlan:
    """The first composition, at the largest size that was asked for; at the usual one where times are asked for too."""
    from rsag.plan.kernels import plan_kernels
    from rsag.reduction import DType

    if timing.preset is not None:
        size = PRESETS[timing.preset].kernels_bytes
        return plan_kernels(world_size=world_size, backend=backend, size=size)
    names = _split(timing.compositions or "") or ["rs_ag_in_place"]
    return plan_kernels(
        world_size=world_size,
        backend=backend,
        size=max(parse_bytes(one) for one in _split(timing.sizes)) if timing.sizes and not with_times else None,
        composition=names[0],
        dtype=_member(DType, "dtype", timing.dtype),
        op=parse_op(timing.op),
    )


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _member(kind: Any, what: str, name: str) -> Any:
    try:
        return kind(name.lower())
    except ValueError:
        raise unknown_name(what, name, (member.value for member in kind)) from None


def _percent(text: str) -> float:
    try:
        return float(text.removesuffix("%")) / 100
    except ValueError:
        raise UsageError("not a percentage", got=repr(text), expected="for example 1%") from None
