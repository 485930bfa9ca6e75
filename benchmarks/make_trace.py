"""Makes a large Kineto trace whose right answer is known: the NCCL kernels that each range launched.

The layout, the order (host operators first, then calls and device rows) and the mix of events are those of
torch.profiler 2.11 on H200. A seed and a number of events give the same bytes on every machine. With its defaults the
file has 4.3 million events in 1.0 GB: 15 % kernels, 20 % launches, two launching threads, 40,000 NCCL kernels.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import BinaryIO

NUM_EVENTS, NUM_COLLECTIVES = 4_300_000, 40_000
COLLECTIVES_PER_STEP = 40
EVENTS_PER_COLLECTIVE, EVENTS_PER_TRIPLE = 8, 19
BASE_NS = 1_790_857_026_000_000_000
FIRST_NS = 5_209_851_962_657_243  # after the base, as in a real file: a double cannot hold the sum
PROCESS, MAIN, AUTOGRAD = 4242, 4242, 4311
COMPUTE_STREAM, COMM_STREAM = 7, 17

HEADER = """
  {
    "schemaVersion": 1,
    "deviceProperties": [
    {
      "id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150109880320,
      "computeMajor": 9, "computeMinor": 0
    }
    ],
      "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2, "pg_count": 1, "nccl_version": "2.28.9"},
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": %d,
  "traceEvents": [
  {
    "name": "process_name", "ph": "M", "ts": 5209851962240.601, "pid": 4242, "tid": 0,
    "args": {
      "name": "python3"
    }
  }"""
FOOTER = """
  ],
  "traceName": "made[0].json"
}"""

HOST = """,
  {
    "ph": "X", "cat": "%s", "name": "%s", "pid": 4242, "tid": %d,
    "ts": %s, "dur": %s,
    "args": {
      "External id": %d,"Record function id": 0, %s"Ev Idx": %d
    }
  }"""
CALL = """,
  {
    "ph": "X", "cat": "%s", "name": "%s", "pid": 4242, "tid": %d,
    "ts": %s, "dur": 4.128,
    "args": {
      "External id": %d,      "cbid": 652, "correlation": %d
    }
  }"""
LAUNCH = (
    CALL
    + """,
  {
    "ph": "s", "id": %d, "pid": 4242, "tid": %d, "ts": %s,
    "cat": "ac2g", "name": "ac2g"
  }"""
)
KERNEL = """,
  {
    "ph": "X", "cat": "kernel", "name": "%s", "pid": 0, "tid": %d,
    "ts": %s, "dur": %s,
    "args": {
      "External id": %d,      "queued": 0, "device": 0, "context": 1,      "stream": %d, "correlation": %d,      \
"registers per thread": 96,      "shared memory": 103808,      "blocks per SM": 0.181818,      \
"warps per SM": 3.090909,      "grid": [24, 1, 1],      "block": [544, 1, 1],      \
"est. achieved occupancy %%": 0%s
    }
  },
  {
    "ph": "f", "id": %d, "pid": 0, "tid": %d, "ts": %s,
    "cat": "ac2g", "name": "ac2g", "bp": "e"
  }"""
MEMSET = """,
  {
    "ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "pid": 0, "tid": 7,
    "ts": %s, "dur": 1.056,
    "args": {
      "External id": %d,      "device": 0, "context": 1,      "stream": 7, "correlation": %d,      "bytes": 4096
    }
  }"""
ON_DEVICE = """,
  {
    "ph": "X", "cat": "gpu_user_annotation", "name": "%s", "pid": 0, "tid": 17,
    "ts": %s, "dur": 30.881,
    "args": {
      "External id": %d
    }
  }"""
METADATA = (
    '"Collective name": "%s", "In msg nelems": 1048576, "Out msg nelems": 1048576, "Group size": 2, '
    '"dtype": "Float", "In split size": "[]", "Out split size": "[]", "Process Group Name": "0", '
    '"Process Group Description": "default_pg", "Process Group Ranks": "[0, 1]"'
)
SHAPES = '"Input Dims": [[4096, 4096]], '
COMPUTE = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >"


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """How one collective shows in its four places."""

    operator: str
    recorded: str
    annotation: str
    kernel: str


ALL_REDUCE = Collective(
    operator="c10d::allreduce_",
    recorded="allreduce",
    annotation="nccl:all_reduce",
    kernel="ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
)
REDUCE_SCATTER = Collective(
    operator="c10d::_reduce_scatter_base_",
    recorded="_reduce_scatter_base",
    annotation="nccl:_reduce_scatter_base",
    kernel="ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
)
ALL_GATHER = Collective(
    operator="c10d::_allgather_base_",
    recorded="_allgather_base",
    annotation="nccl:_all_gather_base",
    kernel="ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
)
# Range, its thread, and what is called in it, over and over.
RANGES = (
    ("forward", MAIN, (ALL_GATHER,)),
    ("backward", AUTOGRAD, (REDUCE_SCATTER, ALL_GATHER)),
    ("optimizer", MAIN, (ALL_REDUCE,)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What is in the file: the NCCL kernels by the range whose thread launched them while it was open."""

    num_events: int
    num_bytes: int
    num_kernels: int
    num_launches: int
    nccl_kernels_by_range: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One thing that the host does at `ns`: three computing operators, or the collective."""

    ns: int
    thread: int
    number: int  # external id and correlation ids start here
    collective: Collective | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """One instance of a range with what happens in it."""

    name: str
    thread: int
    start_ns: int
    end_ns: int
    items: tuple[Item, ...]


def us(ns: int) -> str:
    """Microseconds with three decimals, as Kineto writes them."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def schedule(num_events: int, seed: int) -> Iterator[Stretch]:
    """All stretches in order of time: the same ones for the same arguments, however often it is asked for."""
    rng = Random(seed)
    num_collectives = max(1, round(num_events * NUM_COLLECTIVES / NUM_EVENTS))
    num_steps = -(-num_collectives // COLLECTIVES_PER_STEP)
    num_triples = max(0, num_events - num_collectives * EVENTS_PER_COLLECTIVE) // EVENTS_PER_TRIPLE
    ns, number = FIRST_NS, 10
    for step in range(num_steps):
        left = min(COLLECTIVES_PER_STEP, num_collectives - step * COLLECTIVES_PER_STEP)
        triples = num_triples // num_steps + (step < num_triples % num_steps)
        cuts = sorted(rng.randrange(left + 1) for _ in RANGES[1:])
        shares = [b - a for a, b in zip([0, *cuts], [*cuts, left])]
        for (name, thread, cycle), share in zip(RANGES, shares):
            computing, triples = (triples, 0) if name == RANGES[-1][0] else (triples // 2, triples - triples // 2)
            kinds = [cycle[i % len(cycle)] for i in range(share)] + [None] * computing
            rng.shuffle(kinds)
            start_ns, items = ns, []
            for kind in kinds:
                ns += 30_000 + rng.randrange(5_000)
                items.append(Item(ns=ns, thread=thread, number=number, collective=kind))
                number += 8
            ns += 40_000
            yield Stretch(name=name, thread=thread, start_ns=start_ns, end_ns=ns, items=tuple(items))


def host_rows(stretch: Stretch) -> Iterator[str]:
    yield HOST % (
        *("user_annotation", stretch.name, stretch.thread),
        *(us(stretch.start_ns), us(stretch.end_ns - stretch.start_ns), 1, "", 1),
    )
    for item in stretch.items:
        number, thread, ns = item.number, item.thread, item.ns
        if item.collective is None:
            for i, name in enumerate(("aten::linear", "aten::add", "aten::mul")):
                yield HOST % ("cpu_op", name, thread, us(ns + 8000 * i), "7.123", number, SHAPES, number)
            for i, name in enumerate(("torch/nn/modules/module.py(1784): _call_impl", "nn.Module: Linear_0")):
                yield HOST % ("python_function", name, thread, us(ns + i), "25.001", number, "", number)
        else:
            called, metadata = item.collective, METADATA % item.collective.recorded + ", "
            yield HOST % ("cpu_op", called.operator, thread, us(ns), "28.402", number, "", number)
            yield HOST % ("cpu_op", "record_param_comms", thread, us(ns + 900), "26.007", number + 1, metadata, number)
            yield HOST % ("user_annotation", called.annotation, thread, us(ns + 1800), "22.5", number + 2, "", number)


def device_rows(stretch: Stretch) -> Iterator[str]:
    for item in stretch.items:
        number, thread, ns = item.number, item.thread, item.ns
        if item.collective is None:
            for i, api in enumerate(("cudaLaunchKernel", "cudaLaunchKernel", "cudaLaunchKernelExC")):
                at, id_ = us(ns + 8000 * i + 1500), number + i
                yield LAUNCH % ("cuda_runtime", api, thread, at, number, id_, id_, thread, at)
                at = us(ns + 8000 * i + 70_000)
                yield KERNEL % (COMPUTE, COMPUTE_STREAM, at, "6.944", number, COMPUTE_STREAM, id_, "", id_, 7, at)
            yield CALL % ("cuda_runtime", "cudaMemsetAsync", thread, us(ns + 25_000), number, number + 3)
            yield MEMSET % (us(ns + 95_000), number, number + 3)
        else:
            called, at = item.collective, us(ns + 5_000)
            yield LAUNCH % ("cuda_driver", "cuLaunchKernelEx", thread, at, number + 1, number, number, thread, at)
            at, metadata = us(ns + 80_000), ", " + METADATA % called.recorded
            yield KERNEL % (
                *(called.kernel, COMM_STREAM, at, "30.879", number + 1),
                *(COMM_STREAM, number, metadata, number, COMM_STREAM, at),
            )
            yield ON_DEVICE % (called.annotation, at, number + 2)


def write(to: BinaryIO, num_events: int = NUM_EVENTS, seed: int = 0) -> Truth:
    """Write the trace, and say what is in it."""
    num_bytes = to.write((HEADER % BASE_NS).encode())
    by_range: Counter[str] = Counter()
    num_rows = num_triples = 0
    for rows in (host_rows, device_rows):
        for stretch in schedule(num_events, seed):
            num_bytes += to.write("".join(rows(stretch)).encode())
            if rows is host_rows:
                num_collectives = sum(item.collective is not None for item in stretch.items)
                by_range[stretch.name] += num_collectives
                num_triples += len(stretch.items) - num_collectives
                num_rows += 1
    num_bytes += to.write(FOOTER.encode())
    num_collectives = by_range.total()
    return Truth(
        num_events=1 + num_rows + num_triples * EVENTS_PER_TRIPLE + num_collectives * EVENTS_PER_COLLECTIVE,
        num_bytes=num_bytes,
        num_kernels=3 * num_triples + num_collectives,
        num_launches=4 * num_triples + num_collectives,
        nccl_kernels_by_range=dict(by_range),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", help="where to; .gz compresses; without one nothing is made")
    parser.add_argument("--events", type=int, default=NUM_EVENTS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.file is None:
        return
    with gzip.open(options.file, "wb", 6) if options.file.suffix == ".gz" else options.file.open("wb") as to:
        truth = write(to, options.events, options.seed)
    print(json.dumps(asdict(truth), indent=1))


if __name__ == "__main__":
    main()
