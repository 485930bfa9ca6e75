"""The pure parts of `benchmarks/training_memory.py`: how the allocator's record is replayed, and blocks are named."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module("training_memory")


def settings(benchmark: ModuleType) -> Any:
    return benchmark.Settings("torch_fully_shard", cuda=True, layers=2, width=256, batch=512, warm_steps=1, out="")


def frames(*names: str, file: str = "_fully_shard/_fsdp_collectives.py") -> list[dict[str, Any]]:
    return [{"name": name, "filename": file, "line": 1} for name in names]


@pytest.mark.parametrize(
    ("size", "made_by", "category"),
    [
        (262144, frames("allocate", "foreach_all_gather"), "all-gather buffers"),
        (262144, frames("alloc_storage", "foreach_all_gather_copy_out"), "whole parameters"),
        (262144, frames("allocate", "foreach_reduce"), "reduce-scatter inputs"),
        (131072, frames("allocate", "foreach_reduce"), "gradients"),
        (131072, frames("_init_sharded_param", "__init__"), "parameters"),
        (131072, frames("_init_group", file="torch/optim/adam.py"), "optimizer"),
        (131072, frames("step", file="torch/optim/adam.py"), "optimizer scratch"),
        (262144, frames("_pre_forward", file="torch/nn/parallel/distributed.py"), "buckets"),
        (262144, [], "gradients"),
        (524288, [], "activations"),
        (33554432, [], "workspace"),
        (99999999, [], "unnamed"),
        (4, [], "small"),
    ],
)
def test_a_block_is_named_by_where_it_was_made_or_else_by_its_size(
    benchmark: ModuleType, size: int, made_by: list[dict[str, Any]], category: str
) -> None:
    assert category == benchmark.categorise(size, made_by, settings(benchmark))


def test_the_record_is_replayed_to_the_peak_of_the_marked_step(benchmark: ModuleType) -> None:
    def alloc(address: int, size: int) -> dict[str, Any]:
        return {"action": "alloc", "addr": address, "size": size, "frames": []}

    def free(address: int) -> dict[str, Any]:
        return {"action": "free_requested", "addr": address, "size": 0}

    def mark(name: str) -> dict[str, Any]:
        return alloc(1, benchmark.MARK_BYTES + benchmark.MARKS.index(name))

    trace = [
        *(alloc(7, 1000), mark("probed"), alloc(9, 262144), mark("begin"), free(9), mark("zeroed")),
        *(alloc(2, 524288), mark("forward"), alloc(3, 262144), free(2), mark("backward"), mark("update")),
    ]
    found = benchmark.replay(trace, settings(benchmark))
    assert {"workspace": 1000, "gradients": 262144} == found["begin"]
    assert ("forward", 1000 + 524288 + 262144) == (found["peak"]["phase"], found["peak"]["total"])
    assert {"workspace": 1000, "gradients": 262144, "activations": 0} == found["steady"]


def test_a_record_without_marks_is_no_measurement(benchmark: ModuleType) -> None:
    with pytest.raises(SystemExit, match="no marks"):
        benchmark.replay([], settings(benchmark))
