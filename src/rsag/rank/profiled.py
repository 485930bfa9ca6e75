"""A stretch of calls under torch's profiler: marked, counted, and written down as a trace that any tool reads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]
from torch.profiler import ProfilerActivity, profile, record_function

from rsag.records.execution import Counted

_LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch", "cuGraphLaunch")
_EVENT_RECORDS = ("cudaEventRecord", "cuEventRecord")
_STREAM_WAITS = ("cudaStreamWaitEvent", "cuStreamWaitEvent")


@contextlib.contextmanager
def profiled(path: Path, *, on_device: bool) -> Iterator[Any]:
    """A torch.profiler.profile over what is inside; its trace is at `path` afterwards."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_device else [])]
    # Without a GPU the shapes of calls are all that tells counts; NCCL's are recorded anyway.
    with profile(activities=activities, record_shapes=not on_device) as found:
        yield found
    found.export_chrome_trace(str(path))


@contextlib.contextmanager
def marked(name: str, *, on_device: bool) -> Iterator[None]:
    """A range for torch.profiler and, where there is a GPU, for NVTX, so that Nsight Systems sees the same."""
    with record_function(name):
        if on_device:
            torch.cuda.nvtx.range_push(name)  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            if on_device:
                torch.cuda.nvtx.range_pop()  # type: ignore[no-untyped-call]


def count_in(found: Any, name: str, *, on_device: bool, calls: str | None = None, works: int | None = None) -> Counted:
    """What the host did between the ends of the range called `name`, on whatever thread; calls begin with `calls`."""
    events = [event for event in found.events() if event.device_type == DeviceType.CPU]
    spans = [event.time_range for event in events if event.name == name]
    inside = [
        event.name
        for event in events
        if any(span.start <= event.time_range.start and event.time_range.end <= span.end for span in spans)
    ]

    def of(prefixes: tuple[str, ...]) -> int | None:
        return sum(called.startswith(prefixes) for called in inside) if on_device else None

    return Counted(
        calls=None if calls is None else sum(called.startswith(calls) for called in inside),
        works=works,
        launches=of(_LAUNCHES),
        event_records=of(_EVENT_RECORDS),
        stream_waits=of(_STREAM_WAITS),
    )
