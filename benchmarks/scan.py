"""How fast results are checked: the full scan of a timed result against torch.sum over the same buffer.

Promise: the scan reaches 60 % of torch.sum's bandwidth on CUDA and 30 % on CPU; it compares every element, chunk by
chunk, with at most one chunk of extra memory.

    python benchmarks/scan.py
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from statistics import median

import torch

from rsag.rank.tiles import Pieces, Scratch, Tiles
from rsag.reduction import DType, ReduceOp
from rsag.units import MIB, format_bytes

PROMISED = {"cuda": 0.60, "cpu": 0.30}
NUM_ROUNDS = 15


def main() -> None:
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    print(f"{'device':8}{'buffer':>10}{'torch.sum GB/s':>16}{'scan GB/s':>12}{'scan/sum':>10}  promise")
    for name in devices:
        for size in (256 * MIB, 1024 * MIB):
            measure(torch.device(name), size)


def measure(device: torch.device, size: int) -> None:
    numel = size // 4
    tiles = Tiles(ReduceOp.SUM, DType.FLOAT32, 2, device)
    chunk = tiles.contributed(0, numel)
    buffer = torch.empty(numel, dtype=torch.float32, device=device)
    pieces = Pieces(buffer, chunk)
    pieces.fill()
    scratch = Scratch(chunk.numel(), buffer.dtype, device)
    wrong = torch.zeros((), dtype=torch.int64, device=device)
    arms: list[Callable[[], object]] = [lambda: torch.sum(buffer), lambda: pieces.count_wrong(scratch, wrong)]
    for arm in arms * 2:
        timed(arm, device)
    times: list[list[float]] = [[], []]
    for _ in range(NUM_ROUNDS):
        first = random.randrange(2)
        for index in (first, 1 - first, 1 - first, first):
            times[index].append(timed(arms[index], device))
    assert int(wrong) == 0, "the scan found what is not there"
    buffer[-1] += 1
    pieces.count_wrong(scratch, wrong)
    assert int(wrong) == 1, "the scan missed a wrong element"
    ratio = median(a / b for a, b in zip(*times))
    speeds = [size / median(row) / 1e9 for row in times]
    kept = "kept" if ratio >= PROMISED[device.type] else "MISSED"
    print(
        f"{device.type:8}{format_bytes(size):>10}{speeds[0]:16.1f}{speeds[1]:12.1f}{ratio:10.2f}"
        f"  {PROMISED[device.type]:.0%} {kept}"
    )


def timed(call: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
