"""This process as a rank: its place in the world, its device, its process groups, and what there is to say of it."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from rsag.carriers.memory import why_not_registered
from rsag.carriers.torch_api import api
from rsag.errors import UsageError
from rsag.records.latency import Buffers, LatencyPlan
from rsag.records.plan import Backend
from rsag.records.run import RankInfo

_PREFIXES = ("NCCL_", "GLOO_", "TORCH_", "CUDA_", "OMP_", "SLURM_", "OMPI_COMM_WORLD_", "PMI_")
_NAMES = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "PYTORCH_CUDA_ALLOC_CONF", "LD_PRELOAD")
_LAUNCHERS = {
    "RSAG_STORE": "local",
    "TORCHELASTIC_RUN_ID": "torchrun",
    "SLURM_PROCID": "srun",
    "OMPI_COMM_WORLD_RANK": "mpirun",
    "PMI_RANK": "mpirun",
}
"""By the variable that each sets, the first that is there."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where this process stands: global rank, world size, rank on its host."""

    rank: int
    world_size: int
    local_rank: int
    store: str | None  # the local launcher's file store; None under another launcher, which set MASTER_ADDR
    launcher: str = "local"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Place:
        """As torchrun and the local launcher set it; srun's and mpirun's variables serve where RANK is not set."""
        ranks = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
        sizes = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
        locals_ = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
        rank, size = _first_int(environment, ranks), _first_int(environment, sizes)
        if rank is None or size is None:
            raise UsageError(
                "this process is no rank",
                got="neither RANK and WORLD_SIZE nor SLURM's or MPI's variables",
                do="start it with torchrun, srun or mpirun, or use rsag run",
            )
        local = _first_int(environment, locals_)
        launcher = next((name for variable, name in _LAUNCHERS.items() if variable in environment), "another")
        return cls(rank, size, rank if local is None else local, environment.get("RSAG_STORE"), launcher)


def _first_int(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    return next((int(environment[name]) for name in names if environment.get(name, "").isdigit()), None)


def choose_device(backend: Backend, place: Place) -> torch.device:
    """The rank's device, made current before any communicator exists, so that no context lands on GPU 0 by mistake."""
    if backend is Backend.GLOO:
        return torch.device("cpu")
    available = torch.cuda.device_count()
    if place.local_rank >= available:
        raise UsageError(
            "more ranks on this host than GPUs",
            got=f"local rank {place.local_rank}, {available} GPUs",
            do="start fewer ranks per host, or use --backend gloo",
        )
    device = torch.device("cuda", place.local_rank)
    torch.cuda.set_device(device)
    return device


def require_buffers(plan: LatencyPlan) -> None:
    """Raise UsageError where this torch cannot register what arms of the plan lie in: before anything is timed."""
    for kind in dict.fromkeys(arm.buffers for arm in plan.arms if arm.buffers is not Buffers.PLAIN):
        why = why_not_registered(symmetric=kind is Buffers.SYMMETRIC)
        if why is not None:
            raise UsageError(f"no {kind.value} buffers here", got=why, do=f"leave {kind.value} out of --buffers")


def without_graph_registration(plan: LatencyPlan, environment: MutableMapping[str, str] = os.environ) -> None:
    """Before NCCL starts, keep it from registering the buffers of graphs by itself, where arms have registered ones.

    What it registers for a graph it knows by its addresses, also after the graph is gone. Memory that is registered
    next at the same addresses, as each round's is, was read through the old mapping: with NCCL 2.28.9 on two H200 every
    element of ReduceScatter and AllGather was wrong in half of the rounds after the first, and AllReduce right. What
    torch's own allocator gives is not registered for graphs anyway.
    """
    if any(arm.buffers is not Buffers.PLAIN for arm in plan.arms):
        environment["NCCL_GRAPH_REGISTER"] = "0"


def start_groups(backend: Backend, place: Place, device: torch.device, timeout_s: float) -> Any:
    """Join the default group; the return value is the control group, which carries CPU tensors on any backend."""
    timeout = timedelta(seconds=timeout_s)
    rendezvous: dict[str, Any] = {"init_method": "env://"}
    if place.store is not None:
        rendezvous = {"store": dist.FileStore(place.store, place.world_size)}  # type: ignore[attr-defined]
    if device.type == "cuda":
        rendezvous["device_id"] = device
    dist.init_process_group(backend.value, rank=place.rank, world_size=place.world_size, timeout=timeout, **rendezvous)
    return None if backend is Backend.GLOO else dist.new_group(backend="gloo", timeout=timeout)


def agree_on_launch(control: Any, mine: bytes) -> str:
    """Rank 0's `mine`, in hex, on every rank; all give as many bytes. `control` carries CPU tensors."""
    shared = torch.tensor(list(mine), dtype=torch.uint8)
    dist.broadcast(shared, 0, group=control)
    return bytes(shared.tolist()).hex()


def describe(backend: Backend, place: Place, device: torch.device, environment: Mapping[str, str]) -> RankInfo:
    """What goes into the first line of the rank's rows."""
    versions = {"python": platform.python_version(), "torch": str(torch.__version__)}
    if device.type == "cuda":
        versions["cuda"] = str(torch.version.cuda)
        versions["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())  # type: ignore[no-untyped-call]
    return RankInfo(
        rank=place.rank,
        world_size=place.world_size,
        local_rank=place.local_rank,
        host=socket.gethostname(),
        pid=os.getpid(),
        device=torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else platform.processor() or platform.machine(),
        backend=backend,
        versions=versions,
        collective_names=dict(api().names),
        environment={
            name: value for name, value in sorted(environment.items()) if name.startswith(_PREFIXES) or name in _NAMES
        },
    )
