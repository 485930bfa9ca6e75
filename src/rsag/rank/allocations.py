"""What a program really holds while the owning carrier runs it: each allocator's own account, as a timeline.

On CPUs torch's allocator tells the profiler of every allocation and free, those on a backend's own threads included. On
CUDA its counters are sampled after each instruction, peaks in between included.
"""

from __future__ import annotations

import gc
import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from rsag.carriers.owning import Observe
from rsag.programs import Alloc, Instruction, Program, Release, Start, Wait
from rsag.records.memory import MemoryLedger, MemoryMoment, MemoryReading, Thread

Work = Callable[[Observe], object]
"""Makes the input and runs the program, observed; what it returns is alive when steady memory is read."""

_STEP, _END = "rsag:step", "rsag:end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    method: str
    readings: tuple[MemoryReading, ...]
    timeline: tuple[MemoryMoment, ...]


class Meter(Protocol):
    def measure(self, program: Program, itemsize: int, work: Work) -> Measured:
        """What `work` holds of `program`, whose elements have `itemsize` bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """`bytes` allocated (or freed, below 0) at `address`, after `step` instructions were done.

    Torch's profiler does not look at a backend's thread once its work is done, so that it may miss a free there.
    """

    step: int
    thread: Thread
    address: int
    bytes: int
    seen: bool = True


class CpuMeter:
    """By torch's own allocator events; what was there before is not counted, so the baseline is 0."""

    def measure(self, program: Program, itemsize: int, work: Work) -> Measured:
        gc.collect()
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            held = work(_mark)
            with record_function(_END):
                pass
        timeline = trace_timeline(program, itemsize, read_events(_exported(profiler)))
        del held
        reading = MemoryReading(
            ledger=MemoryLedger.REQUESTED,
            baseline_bytes=0,
            steady_bytes=timeline[-1].live_bytes if timeline else 0,
            peak_bytes=max((moment.live_bytes for moment in timeline), default=0),
        )
        return Measured(method="allocator events of torch.profiler", readings=(reading,), timeline=timeline)


def _mark(_: Instruction) -> None:
    with record_function(_STEP):
        pass


def _exported(profiler: profile) -> Sequence[dict[str, Any]]:
    """The trace is the profiler's only public way to single events of memory."""
    with tempfile.TemporaryDirectory(prefix="rsag-memory-") as scratch:
        path = Path(scratch) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events: list[dict[str, Any]] = json.loads(path.read_bytes())["traceEvents"]
        return events


def read_events(trace: Iterable[dict[str, Any]]) -> list[Event]:
    """The memory events of an exported trace up to the end mark, in the order in which they happened."""
    wanted = sorted((row for row in trace if row.get("name") in ("[memory]", _STEP, _END)), key=lambda row: row["ts"])
    caller = next(row["tid"] for row in wanted if row["name"] == _END)
    events = []
    step = 0
    for row in wanted:
        if row["name"] == _END:
            break
        if row["name"] == _STEP:
            step += 1
            continue
        if row["args"]["Device Type"] == 0:
            thread = Thread.CALLER if row["tid"] == caller else Thread.WORKER
            events.append(Event(step=step, thread=thread, address=row["args"]["Addr"], bytes=int(row["args"]["Bytes"])))
    return events


def trace_timeline(program: Program, itemsize: int, events: Iterable[Event]) -> tuple[MemoryMoment, ...]:
    """Each event with the instruction that it came from. Frees of what was there before are left out.

    A worker's event belongs to a collective in flight of that size, which may have been started long before. What a
    collective allocated and nobody saw freed is taken to be freed at its end.
    """
    names = instruction_names(program)
    blocks: dict[int, int] = {}
    moments: list[MemoryMoment] = []
    num_blocks = live = 0
    for event in with_unseen_frees(program, itemsize, list(events)):
        if event.bytes > 0:
            blocks[event.address] = num_blocks
            num_blocks += 1
        elif event.address not in blocks:
            continue
        block = blocks[event.address] if event.bytes > 0 else blocks.pop(event.address)
        live += event.bytes
        step = _source(program, itemsize, event)
        moments.append(
            MemoryMoment(
                what=names[step] if step < len(names) else "return",
                bytes=event.bytes,
                live_bytes=live,
                thread=event.thread,
                payload_bytes=_payload(program, step) * itemsize,
                block=block,
                seen=event.seen,
            )
        )
    return tuple(moments)


def instruction_names(program: Program) -> list[str]:
    """`allocate shard`, `release input`, `copy`, `reduce_scatter`, `wait`: in the ledger's words."""
    roles = {step.view.buffer: step.role.value for step in program.code if isinstance(step, Alloc)}
    names = []
    for step in program.code:
        if isinstance(step, Alloc):
            names.append(f"allocate {step.role.value}")
        elif isinstance(step, Release):
            names.append(f"release {roles[step.view.buffer]}")
        else:
            names.append("wait" if isinstance(step, Wait) else step.kind.value)
    return names


def with_unseen_frees(program: Program, itemsize: int, events: Sequence[Event]) -> list[Event]:
    """`events`, and the end of each block that a collective allocated and that nobody saw freed.

    It ends with its collective, or before its address is given out again, if that comes first.
    """
    frees: list[tuple[int, Event]] = []
    for index, event in enumerate(events):
        rest = range(index + 1, len(events))
        again = next((at for at in rest if events[at].address == event.address), len(events))
        was_seen = again < len(events) and events[again].bytes < 0
        end = _end_of(program, _source(program, itemsize, event))
        if event.bytes > 0 and not was_seen and end is not None:
            before = next((at for at in rest if at >= again or events[at].step > end), len(events))
            free = Event(step=end, thread=Thread.WORKER, address=event.address, bytes=-event.bytes, seen=False)
            frees.append((before, free))
    completed = list(events)
    for before, free in sorted(frees, key=lambda found: found[0], reverse=True):
        completed.insert(before, free)
    return completed


def _end_of(program: Program, index: int) -> int | None:
    """The instruction that ends the collective which is instruction `index`; None where it is none."""
    start = program.code[index] if index < len(program.code) else None
    if not isinstance(start, Start):
        return None
    waits = (at for at, step in enumerate(program.code) if isinstance(step, Wait) and step.token == start.token)
    return index if start.blocking else next(waits, index)


def _source(program: Program, itemsize: int, event: Event) -> int:
    if event.thread is Thread.CALLER:
        return event.step
    waits = {step.token: index for index, step in enumerate(program.code) if isinstance(step, Wait)}
    for index, step in enumerate(program.code[: event.step + 1]):
        in_flight = isinstance(step, Start) and waits.get(step.token, index) >= event.step
        if in_flight and _payload(program, index) * itemsize == abs(event.bytes):
            return index
    return event.step


def _payload(program: Program, index: int) -> int:
    """Elements of the full side of the collective that is instruction `index`; 0 where it is none."""
    step = program.code[index] if index < len(program.code) else None
    return max(len(step.inp or ()), len(step.out or ())) if isinstance(step, Start) else 0


# ---------------------------------------------------------------------------------------------------------------- CUDA


class CudaMeter:
    """By the caching allocator's counters and the driver's. Made before the communicators that it is to count."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._outside_at_first = self._outside()

    def measure(self, program: Program, itemsize: int, work: Work) -> Measured:  # noqa: ARG002 - counters know bytes
        gc.collect()
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self._device)
        baseline = self._sample()
        samples: list[dict[MemoryLedger, tuple[int, int]]] = []

        def observe(_: Instruction) -> None:
            samples.append(self._sample())
            torch.cuda.reset_peak_memory_stats(self._device)

        held = work(observe)
        torch.cuda.synchronize(self._device)
        steady = self._sample()
        del held
        readings = tuple(
            MemoryReading(
                ledger=ledger,
                baseline_bytes=base - (self._outside_at_first if ledger is MemoryLedger.OUTSIDE else 0),
                steady_bytes=steady[ledger][0] - base,
                peak_bytes=max(sample[ledger][1] for sample in (*samples, steady)) - base,
            )
            for ledger, (base, _) in baseline.items()
        )
        requested = [sample[MemoryLedger.REQUESTED] for sample in (*samples, steady)]
        timeline = sampled_timeline(program, baseline[MemoryLedger.REQUESTED][0], requested)
        return Measured(method="torch.cuda.memory_stats after each instruction", readings=readings, timeline=timeline)

    def _sample(self) -> dict[MemoryLedger, tuple[int, int]]:
        """(now, most since the last reset) of each ledger; outside the allocator there is no most."""
        stats = torch.cuda.memory_stats(self._device)
        sample = {
            ledger: (int(stats[f"{ledger.value}_bytes.all.current"]), int(stats[f"{ledger.value}_bytes.all.peak"]))
            for ledger in (MemoryLedger.REQUESTED, MemoryLedger.ALLOCATED, MemoryLedger.RESERVED)
        }
        outside = self._outside()
        return {**sample, MemoryLedger.OUTSIDE: (outside, outside)}

    def _outside(self) -> int:
        free, total = torch.cuda.mem_get_info(self._device)
        return total - free - torch.cuda.memory_reserved(self._device)


def sampled_timeline(program: Program, baseline: int, samples: Sequence[tuple[int, int]]) -> tuple[MemoryMoment, ...]:
    """The changes between samples of (now, most since the one before), one after each instruction and one at the end.

    What came and went within one instruction is two moments.
    """
    moments: list[MemoryMoment] = []
    live = 0
    for name, (now, most) in zip([*instruction_names(program), "return"], samples):
        reached = [most - baseline, now - baseline] if most > max(now, live + baseline) else [now - baseline]
        for after in reached:
            if after != live:
                moments.append(MemoryMoment(what=name, bytes=after - live, live_bytes=after))
                live = after
    return tuple(moments)
