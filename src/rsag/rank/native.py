"""The native probe: one host process drives all GPUs through NCCL itself, without torch.distributed.

`python -m rsag.rank.native --plan plan.json --out DIR` makes all communicators at once, gives each GPU a non-blocking
stream, and calls AllReduce, then ReduceScatter and AllGather in place, on int32, each collective in one group call over
all GPUs. NCCL is called through nccl4py, an extra; without it the probe says so.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rsag.errors import RsagError, UsageError
from rsag.rank.inputs import contribution, oracle
from rsag.rank.profiled import count_in, marked, profiled
from rsag.records.codec import dump_document, load_document
from rsag.records.execution import KernelsPlan, NativeArm, NativeProbe
from rsag.records.plan import Plan
from rsag.records.rundir import NATIVE, native_trace_file
from rsag.reduction import DType, ReduceOp

_PATTERN = 1009
"""Results are compared as a pattern of prime length, repeated: a shard in the wrong place is out of phase."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the probe, and leave native.json and its trace; 0 also where it could not be run."""
    parser = argparse.ArgumentParser(prog="python -m rsag.rank.native", description=__doc__)
    parser.add_argument("--plan", type=Path, required=True, help="the plan.json to run")
    parser.add_argument("--out", type=Path, required=True, help="directory for native.json and its trace")
    options = parser.parse_args(arguments)
    try:
        plan = load_document(Plan, options.plan)
        if plan.kernels is None:
            raise UsageError(f"{options.plan} asks for no kernels", do="write a plan with rsag run --only kernels")
        options.out.mkdir(parents=True, exist_ok=True)
        dump_document(_probe(plan.kernels, plan.world_size, options.out), options.out / NATIVE)
    except RsagError as error:
        print(f"rsag.rank.native: {error}", file=sys.stderr)  # noqa: T201 - this program's only voice is its log
        return int(error.exit_code)
    return 0


def _probe(plan: KernelsPlan, num_devices: int, out: Path) -> NativeProbe:
    try:
        import nccl.core as nccl  # type: ignore[import-not-found,import-untyped,unused-ignore]  # nccl4py, an extra
    except ImportError as error:
        return NativeProbe(num_devices=num_devices, arms=(), reason=f"nccl4py is not installed ({error})")
    version = nccl.get_version()
    with _Devices(nccl, num_devices, plan) as devices:
        return NativeProbe(
            num_devices=num_devices,
            arms=_run(plan, devices, out),
            binding=f"nccl4py {version.nccl4py}",
            library=f"NCCL {version.libnccl.version}",
        )


class _Devices:
    """Buffers, streams and communicators of all GPUs, and the calls on them."""

    def __init__(self, nccl: Any, num_devices: int, plan: KernelsPlan) -> None:
        self.nccl, self.num_devices = nccl, num_devices
        self.shard = plan.bytes // 4 // num_devices
        numel = self.shard * num_devices
        self.devices = [torch.device("cuda", index) for index in range(num_devices)]
        self.inputs = [_tiled(_pattern(num_devices, rank), numel, device) for rank, device in enumerate(self.devices)]
        reduced = [int(value.real) for value in oracle(ReduceOp.SUM, DType.INT32, num_devices, _PATTERN)]
        # In place, every further call multiplies by the number of GPUs what the one before left on all of them.
        after_all = [value * num_devices ** (plan.calls - 1) for value in reduced]
        self.wanted = [_tiled(after_all, numel, device) for device in self.devices]
        self.buffers = [torch.empty_like(one) for one in self.inputs]
        self.streams = [torch.cuda.Stream(device) for device in self.devices]  # type: ignore[no-untyped-call]  # non-blocking, as torch makes them
        self.communicators = nccl.Communicator.init_all(list(range(num_devices)))

    def __enter__(self) -> _Devices:
        return self

    def __exit__(self, *_: object) -> None:
        for communicator in self.communicators:
            communicator.destroy()

    def reset(self) -> None:
        for buffer, given in zip(self.buffers, self.inputs):
            buffer.copy_(given)
        self.finish()

    def finish(self) -> None:
        for device in self.devices:
            torch.cuda.synchronize(device)

    def all_reduce(self) -> None:
        self._together(
            lambda rank, comm, stream: comm.allreduce(
                self.buffers[rank], self.buffers[rank], self.nccl.SUM, stream=stream
            )
        )

    def reduce_scatter_all_gather(self) -> None:
        slices = [buffer[rank * self.shard : (rank + 1) * self.shard] for rank, buffer in enumerate(self.buffers)]
        self._together(
            lambda rank, comm, stream: comm.reduce_scatter(
                self.buffers[rank], slices[rank], self.nccl.SUM, stream=stream
            )
        )
        self._together(lambda rank, comm, stream: comm.allgather(slices[rank], self.buffers[rank], stream=stream))

    def num_wrong(self) -> int:
        return sum(int((buffer != wanted).sum()) for buffer, wanted in zip(self.buffers, self.wanted))

    def _together(self, call: Callable[[int, Any, torch.cuda.Stream], None]) -> None:
        """One call for each GPU in one group, so that one thread may make them all."""
        with self.nccl.group():
            for rank, (communicator, stream) in enumerate(zip(self.communicators, self.streams)):
                call(rank, communicator, stream)


def _run(plan: KernelsPlan, devices: _Devices, out: Path) -> tuple[NativeArm, ...]:
    calls = (devices.all_reduce, devices.reduce_scatter_all_gather)
    for call in calls:
        for _ in range(plan.warmup_calls):
            call()
    devices.finish()
    wrong = []
    with profiled(native_trace_file(out), on_device=True) as found:
        for name, call in zip(plan.ranges, calls):
            devices.reset()
            with marked(name, on_device=True):
                for _ in range(plan.calls):
                    call()
            devices.finish()
            wrong.append(devices.num_wrong())
    return tuple(
        NativeArm(
            range=name,
            wrong=wrong[index],
            counted=count_in(found, name, on_device=True),
        )
        for index, name in enumerate(plan.ranges)
    )


def _pattern(num_devices: int, rank: int) -> list[int]:
    return [int(contribution(ReduceOp.SUM, DType.INT32, num_devices, rank, element)) for element in range(_PATTERN)]


def _tiled(pattern: list[int], numel: int, device: torch.device) -> Tensor:
    return torch.tensor(pattern, dtype=torch.int32, device=device).repeat(-(-numel // len(pattern)))[:numel]


if __name__ == "__main__":
    raise SystemExit(main())
