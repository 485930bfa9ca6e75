"""Launches by flow events: the arrows that Kineto draws from a call of the CUDA API to what it started on a device.

They say where a kernel came from when the call's own row is missing. A second time through the file, since they are
many and hardly ever needed.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import msgspec

from rsag.traces.blocks import Event, EventReader
from rsag.traces.chunks import Chunks
from rsag.traces.events import Launch
from rsag.traces.kineto_values import InvalidRowError, timestamp
from rsag.traces.skips import Skips, int64

FLOW_API = "ac2g"
"""What stands for the name of the call, which a flow event does not have."""

_FLOWS = ("ac2g", "async_cpu_to_gpu")  # today's category, and that of 2022
_ID = msgspec.json.Decoder(int)


def read_flows(path: Path, max_bytes: int, base_ns: int, correlations: Collection[int]) -> list[Launch]:
    """A launch of no length for each flow with one of these correlation ids, in the order of the file."""
    launches: list[Launch] = []
    for block in EventReader(Skips()).blocks(Chunks(path, max_bytes)):
        for event in block.events:
            if event.ph == "s" and event.cat in _FLOWS and (correlation := _id(event)) in correlations:
                launches += _launch(event, correlation, base_ns)
    return launches


def _id(event: Event) -> int:
    """0, which is nobody's, where it is no integer of 64 bits."""
    try:
        return int64(_ID.decode(event.id)) or 0
    except (msgspec.DecodeError, RecursionError):
        return 0


def _launch(event: Event, correlation: int, base_ns: int) -> list[Launch]:
    """Nothing where the event does not say from which thread, or when."""
    process, thread = event.pid, event.tid
    if not isinstance(process, int) or not isinstance(thread, int):
        return []
    try:
        start_ns = base_ns + timestamp(event)
    except InvalidRowError:
        return []
    return [
        Launch(
            process=process,
            thread=thread,
            start_ns=start_ns,
            end_ns=start_ns,
            correlation=correlation,
            api=FLOW_API,
        )
    ]
