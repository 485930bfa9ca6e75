"""Small Kineto traces made by hand, in Kineto's own layout unless a test says otherwise."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from rsag.traces.events import CallSource, Capture, LimitCode, OperationKind
from rsag.traces.kineto import read

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
GEMM = "sm90_xmma_gemm_f32f32_tn_n"
BASE_NS = 1_790_857_026_000_000_000

Row = dict[str, object]


def row(
    cat: str, name: str, ts: object = 100, dur: object = 10, pid: object = 7, tid: object = 7, **args: object
) -> Row:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(correlation: int, name: str = ALL_REDUCE, ts: object = 200, dur: object = 50, **args: object) -> Row:
    more = {"device": 0, "stream": 17, "correlation": correlation, **args}
    return {**row("kernel", name, ts, dur, 0, 17), "args": more}


def launch(correlation: int, api: str = "cuLaunchKernelEx", pid: int = 7, tid: int = 7, ts: object = 110) -> Row:
    return row("cuda_driver", api, ts, 5, pid, tid, correlation=correlation)


def in_kineto_layout(rows: list[str], head: str = '"schemaVersion": 1,') -> bytes:
    """`rows` are JSON objects, or what should have been."""
    inner = ",".join(f"\n  {{\n    {text.strip()[1:-1]}\n  }}" for text in rows)
    text = f'\n  {{\n    {head}\n  "traceEvents": [{inner}\n  ],\n  "traceName": "made[0].json"\n}}'
    return text.encode("utf-8", "surrogateescape")


def trace(*rows: Row, head: str = '"schemaVersion": 1,') -> bytes:
    return in_kineto_layout([json.dumps(one) for one in rows], head)


def read_bytes(folder: Path, data: bytes, *, compressed: bool = False) -> Capture:
    path = folder / ("trace.json.gz" if compressed else "trace.json")
    path.write_bytes(gzip.compress(data) if compressed else data)
    return read(path)


def read_rows(folder: Path, *rows: Row, head: str = '"schemaVersion": 1,') -> Capture:
    return read_bytes(folder, trace(*rows, head=head))


def num_joined(capture: Capture) -> int:
    """Kernels whose launch is in the file as well."""
    launched = {launch.correlation for launch in capture.launches}
    return sum(one.correlation in launched for one in capture.operations if one.kind is OperationKind.KERNEL)


def num_calls(capture: Capture, source: CallSource) -> int:
    return sum(call.source is source for call in capture.calls)


def codes(capture: Capture) -> set[LimitCode]:
    return {limit.code for limit in capture.limits}
