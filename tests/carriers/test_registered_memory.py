"""Memory that NCCL knows beforehand: what can be told without a GPU. The rest is in tests/gpu."""

from __future__ import annotations

import pytest
import torch

from rsag.carriers.memory import ALIGNMENT_BYTES, Plain, aligned, why_not_registered
from rsag.errors import UsageError
from rsag.plan.latency import plan_latency
from rsag.rank.process import require_buffers, without_graph_registration
from rsag.records.latency import Buffers
from rsag.records.plan import Backend


class WithoutWindows:
    def register_mem_pool(self) -> None:
        """register_mem_pool(self, pool)"""


class WithWindows:
    def register_mem_pool(self) -> None:
        """register_mem_pool(self, pool, symm = False)"""


@pytest.mark.parametrize(
    ("backend", "registered", "symmetric"),
    [(None, False, False), (WithoutWindows, True, False), (WithWindows, True, True)],
)
def test_what_a_torch_can_register_is_told_beforehand(
    monkeypatch: pytest.MonkeyPatch, backend: type | None, registered: bool, symmetric: bool
) -> None:
    monkeypatch.setattr(torch.distributed, "ProcessGroupNCCL", backend, raising=False)
    assert registered is (why_not_registered(symmetric=False) is None)
    assert symmetric is (why_not_registered(symmetric=True) is None)


def test_arms_that_this_torch_cannot_register_are_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.distributed, "ProcessGroupNCCL", WithoutWindows, raising=False)
    require_buffers(plan_latency(world_size=2, backend=Backend.NCCL, buffers=(Buffers.PLAIN, Buffers.REGISTERED)))
    with pytest.raises(UsageError, match=r"no symmetric buffers here.*leave symmetric out of --buffers"):
        require_buffers(plan_latency(world_size=2, backend=Backend.NCCL, buffers=(Buffers.SYMMETRIC,)))


@pytest.mark.parametrize(("buffers", "value"), [(Buffers.PLAIN, None), (Buffers.REGISTERED, "0")])
def test_nccl_registers_no_graphs_by_itself_where_arms_are_registered(
    monkeypatch: pytest.MonkeyPatch, buffers: Buffers, value: str | None
) -> None:
    environment: dict[str, str] = {}
    without_graph_registration(plan_latency(world_size=2, backend=Backend.NCCL, buffers=(buffers,)), environment)
    assert value == environment.get("NCCL_GRAPH_REGISTER")


@pytest.mark.parametrize("num_bytes", [0, 1, ALIGNMENT_BYTES, ALIGNMENT_BYTES + 1])
def test_a_tensor_takes_whole_steps_of_the_alignment(num_bytes: int) -> None:
    assert aligned(num_bytes) % ALIGNMENT_BYTES == 0
    assert 0 <= aligned(num_bytes) - num_bytes < ALIGNMENT_BYTES


def test_plain_memory_lies_behind_its_pad_and_gives_tensors_of_their_own() -> None:
    memory = Plain(torch.device("cpu"), pad_bytes=1000)
    one, other = memory.empty(3, torch.float32), memory.empty(3, torch.float32)
    assert one.data_ptr() != other.data_ptr()
    memory.close()
