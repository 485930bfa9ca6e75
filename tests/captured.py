"""Captures built by hand: what a reader would give of a small program, in microseconds that read well."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from rsag.traces.events import (
    Call,
    CallSource,
    Capture,
    DeviceOperation,
    Format,
    GraphLaunch,
    Launch,
    Limit,
    LimitCode,
    Metadata,
    OperationKind,
    Origin,
    Range,
    RangeKind,
)

ROOT = Path(__file__).resolve().parents[1]
PUBLIC = Path(os.environ.get("RSAG_PUBLIC_TRACES") or ROOT.parent / "shared" / "public")
"""Published traces, which are not kept in this repository."""
OWN = ROOT / "tests" / "data" / "traces"

SUM_LL = "ncclDevKernel_{}_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
NAMES = {
    "all_reduce": SUM_LL.format("AllReduce"),
    "reduce_scatter": SUM_LL.format("ReduceScatter"),
    "all_gather": "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "broadcast": "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "sendrecv": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    "generic": "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
}
C10D = {
    "all_reduce": "c10d::allreduce_",
    "reduce_scatter": "c10d::_reduce_scatter_base_",
    "all_gather": "c10d::_allgather_base_",
    "broadcast": "c10d::broadcast_",
    "all_to_all": "c10d::alltoall_base_",
}


def described(collective: str, *, numel: int = 1024, size: int | None = 2, **more: object) -> Metadata:
    """The description of a collective over a full payload of `numel` elements."""
    shard = numel // (size or 1)
    fields: dict[str, object] = {
        "collective": collective,
        "in_numel": shard if collective == "all_gather" else numel,
        "out_numel": shard if collective == "reduce_scatter" else numel,
        "dtype": "Float",
        "group": "0",
        "group_size": size,
        "group_ranks": tuple(range(size or 0)) or None,
    }
    return Metadata(**{**fields, **more})  # type: ignore[arg-type]


@dataclass
class Tracer:
    """Records a program as a profiler would: time passes by one microsecond with everything that is recorded."""

    process: int = 100
    rank: int | None = 0
    now_ns: int = 1_000
    correlation: int = 0
    operations: list[DeviceOperation] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    graphs: list[GraphLaunch] = field(default_factory=list)
    ranges: list[Range] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    limits: list[Limit] = field(default_factory=list)

    def tick(self, microseconds: int = 1) -> int:
        self.now_ns += microseconds * 1_000
        return self.now_ns

    def mark(self, name: str, start_ns: int, *, thread: int = 1, kind: RangeKind = RangeKind.MARK) -> None:
        """A range from `start_ns` until now."""
        span = Range(name=name, kind=kind, process=self.process, thread=thread, start_ns=start_ns, end_ns=self.tick())
        self.ranges.append(span)

    def launch(
        self,
        name: str,
        *,
        device: int = 0,
        thread: int = 1,
        metadata: Metadata | None = None,
        kind: OperationKind = OperationKind.KERNEL,
        api: str = "cuLaunchKernelEx",
        num_operations: int = 1,
        later_us: int = 5,
        launched: bool = True,
    ) -> None:
        """A launch of `num_operations` on a device, which run `later_us` after it and take 10 us each."""
        self.correlation += 1
        start = self.tick()
        if launched:
            self.launches.append(
                Launch(
                    process=self.process,
                    thread=thread,
                    start_ns=start,
                    end_ns=self.tick(),
                    correlation=self.correlation,
                    api=api,
                )
            )
        for number in range(num_operations):
            ran = start + later_us * 1_000 + number * 10_000
            self.operations.append(
                DeviceOperation(
                    kind=kind,
                    name=NAMES.get(name, name),
                    start_ns=ran,
                    end_ns=ran + 10_000,
                    process=self.process,
                    device=device,
                    stream=7,
                    correlation=self.correlation,
                    metadata=metadata,
                )
            )

    def call(
        self,
        collective: str,
        *kernels: str,
        thread: int = 1,
        metadata: Metadata | None = None,
        device: int = 0,
        kind: OperationKind = OperationKind.KERNEL,
    ) -> None:
        """A c10d call as torch records one: the operator, within it record_param_comms, within that the launches."""
        outer = self.tick()
        inner = self.tick()
        for kernel in kernels:
            self.launch(kernel, thread=thread, device=device, kind=kind)
        self.record(CallSource.PARAM_COMMS, metadata or described(collective), inner, thread=thread)
        self.record(CallSource.C10D, Metadata(collective=C10D[collective]), outer, thread=thread)

    def record(self, source: CallSource, metadata: Metadata, start_ns: int, *, thread: int = 1) -> None:
        self.calls.append(
            Call(
                source=source,
                metadata=metadata,
                process=self.process,
                thread=thread,
                start_ns=start_ns,
                end_ns=self.tick(),
            )
        )

    def graph(self, *, device: int = 0, thread: int = 1) -> None:
        """A graph launch that the capture did not expand."""
        self.correlation += 1
        start = self.tick()
        self.launches.append(
            Launch(
                process=self.process,
                thread=thread,
                start_ns=start,
                end_ns=self.tick(),
                correlation=self.correlation,
                api="cudaGraphLaunch_v10000",
            )
        )
        self.graphs.append(
            GraphLaunch(
                process=self.process,
                device=device,
                correlation=self.correlation,
                start_ns=start,
                end_ns=start + 50_000,
            )
        )

    def limit(self, code: LimitCode) -> None:
        self.limits.append(Limit(code=code, message=code.value))

    def capture(self, *, backend: str | None = "nccl", **more: object) -> Capture:
        return Capture(
            source=f"rank{self.rank}.json",
            format=Format.KINETO,
            origin=Origin(rank=self.rank, world_size=2, backend=backend),
            operations=tuple(self.operations),
            launches=tuple(self.launches),
            graph_launches=tuple(self.graphs),
            ranges=tuple(self.ranges),
            calls=tuple(self.calls),
            limits=tuple(self.limits),
            **more,  # type: ignore[arg-type]
        )
