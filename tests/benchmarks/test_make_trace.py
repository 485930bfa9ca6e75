"""The large trace that speed is measured on: the same for the same seed, and with the answer that it claims."""

from __future__ import annotations

import importlib
import io
import json
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from rsag.analyze.kernels import read_kernels
from rsag.traces.files import read_trace

NUM_EVENTS = 20_000


@pytest.fixture
def make_trace(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module("make_trace")


def written(make_trace: ModuleType, seed: int) -> bytes:
    to = io.BytesIO()
    make_trace.write(to, NUM_EVENTS, seed)
    return to.getvalue()


def test_a_seed_gives_the_same_bytes_and_another_seed_others(make_trace: ModuleType) -> None:
    assert written(make_trace, 1) == written(make_trace, 1)
    assert written(make_trace, 1) != written(make_trace, 2)


def test_the_file_has_what_it_claims(make_trace: ModuleType) -> None:
    to = io.BytesIO()
    truth = make_trace.write(to, NUM_EVENTS, 0)
    events = json.loads(to.getvalue())["traceEvents"]
    categories = Counter(event.get("cat") for event in events)
    assert len(to.getvalue()) == truth.num_bytes
    assert len(events) == truth.num_events
    assert categories["kernel"] == truth.num_kernels > 0.15 * len(events)
    assert categories["cuda_runtime"] + categories["cuda_driver"] == truth.num_launches > 0.2 * len(events)
    assert {4242, 4311} <= {event["tid"] for event in events if event.get("cat") == "cuda_driver"}


def test_every_nccl_kernel_is_attributed_to_its_range(make_trace: ModuleType, tmp_path: Path) -> None:
    with (tmp_path / "made.json").open("wb") as to:
        truth = make_trace.write(to, NUM_EVENTS, 3)
    document = read_kernels([read_trace(tmp_path / "made.json")])
    assert truth.nccl_kernels_by_range == {
        name: sum(document.kernels_in(name).values()) for name in truth.nccl_kernels_by_range
    }
