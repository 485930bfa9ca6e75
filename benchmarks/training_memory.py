"""Sharded training in torch as it is, byte by byte, beside what the ledger predicts for it.

Promise: on two GPUs, with at least 1 GiB of parameters, the predicted total of DistributedDataParallel,
ZeroRedundancyOptimizer and fully_shard is within 5 % of the measured one, after a step and at its peak, and what no
category explains is at most 1 %.

Measured is what torch's allocator was asked for, on rank 0, in the step after the warm ones: its own record of every
allocation and free is replayed, and each block is named by where it was made or, on autograd's thread, which has no
Python frames, by its size. Workspace is taken as found: what a forward and backward of one layer leave behind.
Without two GPUs the same runs small on Gloo, and only the tensors that Python can see are compared.

    python benchmarks/training_memory.py [--json FILE] [--layers 16] [--width 4096] [--batch 256] [--variants NAME,...]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from environment import describe

from rsag.compositions.training import find_steps
from rsag.launch import ForkServer, Outcome, failure
from rsag.launch.devices import count_gpus
from rsag.models.memory import MemoryRow, Optimizer, TrainingSizes, predict_step
from rsag.programs import Role
from rsag.reduction import DType
from rsag.units import MIB, format_bytes

VARIANTS = ("torch_ddp", "torch_ddp_views", "torch_zero", "torch_fully_shard")
WORLD_SIZE = 2
PROMISED, PROMISED_UNNAMED = 0.05, 0.01

WHOLE, SHARDS, GRADIENTS, OPTIMIZER = "whole parameters", "parameters", "gradients", "optimizer"
GATHERS, INPUTS, BUCKETS = "all-gather buffers", "reduce-scatter inputs", "buckets"
ACTIVATIONS, WORKSPACE, SCRATCH, SMALL, UNNAMED = "activations", "workspace", "optimizer scratch", "small", "unnamed"
COMPARED: dict[str, tuple[tuple[Role, ...], tuple[str, ...]]] = {
    "parameters": ((Role.PARAMETER,), (SHARDS, WHOLE)),
    "gradients": ((Role.GRADIENT,), (GRADIENTS,)),
    "optimizer": ((Role.OPTIMIZER,), (OPTIMIZER, SCRATCH)),
    "collective buffers": ((Role.GATHERED, Role.STAGING), (GATHERS, INPUTS, BUCKETS)),
    "activations": ((Role.ACTIVATION,), (ACTIVATIONS,)),
    "workspace": ((), (WORKSPACE,)),
    "small": ((), (SMALL,)),
    "unnamed": ((), (UNNAMED,)),
}
"""Lines of the table: roles of the ledger, categories of the measurement."""

SETTLE_S = 2.0
"""The copies that DDP broadcasts at its start belong to NCCL works, which torch's watchdog drops a while later."""
MARKS = ("probed", "begin", "zeroed", "forward", "backward", "update")
MARK_BYTES = 777  # plus the mark's index: sizes that nothing else has
SMALL_BYTES = 64 << 10
WORKSPACES = (8_519_680, 33_554_432)  # cuBLAS: 2 x 4096 + 8 x 16 KiB, or 32 MiB on Hopper (torch's defaults)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the ranks are told."""

    variant: str
    cuda: bool
    layers: int
    width: int
    batch: int
    warm_steps: int
    out: str

    @property
    def layer_bytes(self) -> int:
        return 4 * self.width * self.width

    @property
    def activation_bytes(self) -> int:
        return 4 * self.batch * self.width

    def sizes(self) -> TrainingSizes:
        return TrainingSizes(
            num_layers=self.layers,
            layer_numel=self.width * self.width,
            param_dtype=DType.FLOAT32,
            grad_dtype=DType.FLOAT32,
            optimizer_dtype=DType.FLOAT32,
            optimizer=Optimizer.ADAM,
            activation_bytes=self.activation_bytes,
        )


# -------------------------------------------------------------------------------------------------------- the ranks


def rank_main(arguments: list[str]) -> None:
    """One rank of one variant: trains, and writes what it held to `out/rank-N.json`."""
    import torch
    import torch.distributed as dist

    from rsag.rank.process import Place, choose_device, start_groups
    from rsag.records.plan import Backend

    settings = Settings(**json.loads(arguments[0]))
    place = Place.from_environment(os.environ)
    backend = Backend.NCCL if settings.cuda else Backend.GLOO
    device = choose_device(backend, place)
    start_groups(backend, place, device, 120.0)
    torch.manual_seed(0)
    found = on_gpu(settings, device, place.rank) if settings.cuda else on_cpu(settings, device, place.rank)
    Path(settings.out, f"rank-{place.rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


class Training:
    """The model, wrapped as `variant` says, its optimizer, and one step of it."""

    def __init__(self, settings: Settings, device: Any, rank: int) -> None:
        import torch

        self.settings, self.device = settings, device
        self.model, self.optimizer = wrap(settings, build_model(settings, device), device)
        self.batch = load_batch(settings, device, rank)
        self.loss: Any = torch.zeros(())

    def step(self, mark: Callable[[str], None] = lambda _: None) -> None:
        mark("begin")
        self.optimizer.zero_grad(set_to_none=True)
        mark("zeroed")
        self.loss = self.model(self.batch).mean()
        mark("forward")
        self.loss.backward()
        mark("backward")
        self.optimizer.step()
        mark("update")

    def seen(self) -> dict[str, int]:
        """Bytes of the tensors that Python can see, this rank's part of them."""
        parameters = list(self.model.parameters())
        inner = getattr(self.optimizer, "optim", self.optimizer)
        states = [value for state in inner.state.values() for name, value in state.items() if name != "step"]
        return {
            "parameters": sum(map(local_bytes, parameters)),
            "gradients": sum(local_bytes(one.grad) for one in parameters if one.grad is not None),
            "optimizer": sum(map(local_bytes, states)),
        }

    def total(self) -> float:
        """The sum of all parameters: equal for all variants, up to rounding."""
        import torch

        with torch.no_grad():
            whole = (one.full_tensor() if hasattr(one, "full_tensor") else one for one in self.model.parameters())
            return float(sum(one.double().abs().sum().item() for one in whole))


def local_bytes(tensor: Any) -> int:
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return int(local.numel() * local.element_size())


def build_model(settings: Settings, device: Any) -> Any:
    from torch import nn

    def layer() -> Any:
        return nn.Sequential(
            nn.Linear(settings.width, settings.width, bias=False, device=device), nn.ReLU(inplace=True)
        )

    return nn.Sequential(*(layer() for _ in range(settings.layers)))


def load_batch(settings: Settings, device: Any, rank: int) -> Any:
    import torch

    generator = torch.Generator(device=device).manual_seed(1 + rank)
    return torch.randn(settings.batch, settings.width, device=device, generator=generator)


def wrap(settings: Settings, model: Any, device: Any) -> tuple[Any, Any]:
    """The wrapped model and its optimizer. Adam is the fused one: the others allocate temporaries of their own."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    adam: dict[str, Any] = {"lr": 1e-3, "fused": True}
    if settings.variant == "torch_fully_shard":
        mesh = init_device_mesh(device.type, (WORLD_SIZE,))
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model, torch.optim.Adam(model.parameters(), **adam)
    views = settings.variant == "torch_ddp_views"
    wrapped = DistributedDataParallel(model, gradient_as_bucket_view=views)
    if settings.variant == "torch_zero":
        return wrapped, ZeroRedundancyOptimizer(wrapped.parameters(), optimizer_class=torch.optim.Adam, **adam)
    return wrapped, torch.optim.Adam(wrapped.parameters(), **adam)


def on_cpu(settings: Settings, device: Any, rank: int) -> dict[str, Any]:
    training = Training(settings, device, rank)
    for _ in range(settings.warm_steps + 1):
        training.step()
    return {"seen": training.seen(), "total": training.total()}


def on_gpu(settings: Settings, device: Any, rank: int) -> dict[str, Any]:
    import torch

    def mark(name: str) -> None:
        torch.cuda.synchronize()
        torch.empty(MARK_BYTES + MARKS.index(name), dtype=torch.uint8, device=device)

    torch.cuda.memory._record_memory_history("all", context="alloc", stacks="python", max_entries=2_000_000)
    before = torch.cuda.mem_get_info()[0]
    probe_workspace(settings, device)
    mark("probed")
    training = Training(settings, device, rank)
    for _ in range(settings.warm_steps):
        training.step()
    torch.cuda.synchronize()
    gc.collect()
    time.sleep(SETTLE_S)
    torch.cuda.reset_peak_memory_stats()
    training.step(mark)
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    snapshot = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(None)
    names = [
        f"{what}_bytes.all.{when}" for what in ("requested", "allocated", "reserved") for when in ("current", "peak")
    ]
    return {
        **replay(snapshot["device_traces"][device.index], settings),
        "stats": {name: stats[name] for name in names},
        "device_bytes_used": before - torch.cuda.mem_get_info()[0],
        "seen": training.seen(),
        "total": training.total(),
    }


def probe_workspace(settings: Settings, device: Any) -> None:
    """What is still there afterwards belongs to the libraries that multiply."""
    import torch

    model = build_model(Settings(**{**asdict(settings), "layers": 1}), device)
    model(torch.randn(settings.batch, settings.width, device=device, requires_grad=True)).mean().backward()
    del model
    gc.collect()
    torch.cuda.synchronize()


# ---------------------------------------------------------------------------------------------------- the allocator


def replay(trace: Sequence[dict[str, Any]], settings: Settings) -> dict[str, Any]:
    """The allocator's record from the first event on: live bytes by category, before, at the peak of and after a step.

    The record has the bytes asked for, and a free where the tensor is given up, though a stream may still hold it.
    """
    live: dict[int, tuple[int, str]] = {}
    held: Counter[str] = Counter()
    phase, probed = "start", False
    moments: list[dict[str, Any]] = []
    unnamed: Counter[str] = Counter()
    snapshots: dict[str, dict[str, int]] = {}
    peak: dict[str, Any] = {"total": -1}
    for event in trace:
        action, address, size = event["action"], event["addr"], event["size"]
        index = size - MARK_BYTES
        if action == "alloc" and 0 <= index < len(MARKS):
            phase = MARKS[index]
            snapshots[phase] = dict(held)
            if phase == "probed":
                probed = True
                live = {where: (count, WORKSPACE) for where, (count, _) in live.items()}
                held = Counter({WORKSPACE: sum(count for count, _ in live.values())})
            continue
        if action == "alloc":
            frames = event.get("frames", ())
            name = categorise(size, frames, settings) if probed else "probe"
            live[address] = size, name
            held[name] += size
            if name == UNNAMED:
                unnamed[f"{size} in {phase}: {brief(frames)}"] += 1
        elif action == "free_requested" and address in live:
            size, name = live.pop(address)
            held[name] -= size
            size = -size
        else:
            continue
        if phase in MARKS[1:-1]:
            total = sum(held.values())
            moments.append({"phase": phase, "what": name, "bytes": size, "total": total})
            if total > peak["total"]:
                peak = {"total": total, "phase": phase, "held": dict(held), "moment": len(moments) - 1}
    if not moments:
        raise SystemExit("no marks in the allocator's record: it was cut short, or does not have the bytes asked for")
    around = slice(max(0, peak["moment"] - 14), peak["moment"] + 8)
    return {
        "begin": snapshots.get("begin", {}),
        "steady": snapshots.get("update", {}),
        "by_phase": snapshots,
        "peak": peak,
        "around_the_peak": moments[around],
        "moments": [moment for moment in moments if abs(moment["bytes"]) >= SMALL_BYTES],
        "unnamed": dict(unnamed.most_common(20)),
    }


def categorise(size: int, frames: Sequence[dict[str, Any]], settings: Settings) -> str:
    """What a block is: by the innermost Python frames that made it, else by its size."""
    if size < SMALL_BYTES and size not in (settings.layer_bytes, settings.activation_bytes):
        return SMALL
    functions = {frame["name"] for frame in frames if "_fully_shard" in frame["filename"]}
    if functions:
        return _of_fully_shard(size, functions, settings)
    innermost = frames[0]["filename"] if frames else ""
    if any(frame["name"] == "load_batch" for frame in frames):
        return ACTIVATIONS
    if any(frame["name"] == "build_model" for frame in frames) and size == settings.layer_bytes:
        return SHARDS
    if innermost.endswith("nn/parallel/distributed.py"):
        return BUCKETS
    if any(frame["filename"].endswith(("optim/adam.py", "optim/optimizer.py")) for frame in frames):
        return OPTIMIZER if any(frame["name"] == "_init_group" for frame in frames) else SCRATCH
    if size == settings.layer_bytes:
        return GRADIENTS
    if size == settings.activation_bytes:
        return ACTIVATIONS
    return WORKSPACE if size in WORKSPACES else UNNAMED


def _of_fully_shard(size: int, functions: set[str], settings: Settings) -> str:
    whole = size == settings.layer_bytes
    if "foreach_reduce" in functions:
        return INPUTS if whole else GRADIENTS
    if "foreach_all_gather_copy_out" in functions or "alloc_storage" in functions:
        return WHOLE
    if "foreach_all_gather" in functions:
        return GATHERS
    return SHARDS if functions & {"_init_sharded_param", "__init__"} else UNNAMED


def brief(frames: Sequence[dict[str, Any]]) -> str:
    return " < ".join(f"{Path(one['filename']).name}:{one['name']}" for one in frames[:4]) or "no Python frames"


# ---------------------------------------------------------------------------------------------------- the comparison


def main() -> None:
    options = read_options()
    cuda = count_gpus() >= WORLD_SIZE
    print(describe())
    measured: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path}
        with ForkServer(out=Path(scratch), environment=environment, preload=("torch", "torch.distributed")) as server:
            for variant in options.variants.split(","):
                settings = settings_of(options, variant, cuda, Path(scratch, variant))
                measured[variant] = run_variant(server, settings)
                print(f"{variant} done", file=sys.stderr)
    rows = []
    for variant, ranks in measured.items():
        settings = settings_of(options, variant, cuda, Path())
        step = find_steps(variant)[0]
        predicted = [
            predict_step(step, world_size=WORLD_SIZE, sizes=settings.sizes(), rank=r) for r in range(WORLD_SIZE)
        ]
        rows.append({"variant": variant, "ranks": ranks, "predicted": [asdict(row) for row in predicted]})
        if cuda:
            print_details(variant, predicted[0], ranks[0])
    if options.json:
        options.json.write_text(json.dumps({"about": describe(), "variants": rows}, indent=1) + "\n")
    print_values(measured)
    for variant, ranks in measured.items():
        settings = settings_of(options, variant, cuda, Path())
        print_line(variant, settings, ranks, cuda=cuda)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write everything that was found here")
    parser.add_argument("--layers", type=int, help="default 16, on Gloo 4")
    parser.add_argument("--width", type=int, help="default 4096, on Gloo 64")
    parser.add_argument("--batch", type=int, help="default 256, on Gloo 8")
    parser.add_argument("--warm-steps", type=int, default=2, help="DDP rebuilds its buckets in the second")
    parser.add_argument("--variants", default=",".join(VARIANTS))
    options = parser.parse_args()
    if unknown := set(options.variants.split(",")) - set(VARIANTS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(VARIANTS)}")
    return options


def settings_of(options: argparse.Namespace, variant: str, cuda: bool, out: Path) -> Settings:
    layers, width, batch = (16, 4096, 256) if cuda else (4, 64, 8)
    return Settings(
        variant=variant,
        cuda=cuda,
        layers=options.layers or layers,
        width=options.width or width,
        batch=options.batch or batch,
        warm_steps=options.warm_steps,
        out=str(out),
    )


def run_variant(server: ForkServer, settings: Settings) -> list[dict[str, Any]]:
    out = Path(settings.out)
    report = server.run(
        entry="training_memory:rank_main",
        arguments=[json.dumps(asdict(settings))],
        world_size=WORLD_SIZE,
        out=out,
        deadline_s=240.0,
    )
    if report.outcome is not Outcome.OK:
        for log in sorted(out.glob("*.log")):
            print(f"--- {log.name}\n{log.read_text()[-4000:]}", file=sys.stderr)
        raise failure(report)
    return [json.loads((out / f"rank-{rank}.json").read_text()) for rank in range(WORLD_SIZE)]


def compare(variant: str, live: dict[str, int], held: dict[str, int]) -> list[tuple[str, int, int]]:
    """Each line with predicted and measured bytes; workspace and small things are predicted as they are found."""
    lines = []
    for name, (roles, categories) in COMPARED.items():
        if variant == "torch_ddp_views":  # there the buckets are the gradients
            categories = _move(BUCKETS, name, categories)
        measured = sum(held.get(category, 0) for category in categories)
        given = name in ("workspace", "small")
        lines.append((name, measured if given else sum(live.get(role.value, 0) for role in roles), measured))
    return lines


def _move(category: str, name: str, categories: tuple[str, ...]) -> tuple[str, ...]:
    if name == "gradients":
        return (*categories, category)
    return tuple(one for one in categories if one != category)


def totals(lines: Iterable[tuple[str, int, int]]) -> tuple[int, int, float]:
    """Predicted, measured, and the share of the measured that has no name."""
    lines = list(lines)
    measured = sum(line[2] for line in lines)
    unnamed = next(line[2] for line in lines if line[0] == "unnamed")
    return sum(line[1] for line in lines), measured, unnamed / measured


def moments_of(predicted: MemoryRow, found: dict[str, Any]) -> dict[str, tuple[dict[str, int], dict[str, int]]]:
    """At the end of the step and at its peak: predicted by role, measured by category."""
    assert predicted.steady is not None
    assert predicted.peak is not None
    return {
        "after the step": (predicted.steady.by_role, found["steady"]),
        "at the peak": (predicted.peak.by_role, found["peak"]["held"]),
    }


def print_details(variant: str, predicted: MemoryRow, found: dict[str, Any]) -> None:
    print(f"\n== {variant}, rank 0; measured peak in phase after '{found['peak']['phase']}'")
    for when, (live, held) in moments_of(predicted, found).items():
        print(f"{when:24}{'predicted MiB':>16}{'measured MiB':>16}{'difference':>12}")
        for name, want, got in compare(variant, live, held):
            print(f"  {name:22}{want / MIB:16.2f}{got / MIB:16.2f}{(got - want) / MIB:12.2f}")
        print("  measured: " + ", ".join(f"{name} {count / MIB:.2f}" for name, count in held.items() if count))
    print("around the measured peak (MiB):")
    for moment in found["around_the_peak"]:
        print(f"  {moment['phase']:9}{moment['bytes'] / MIB:+10.2f} {moment['what']:24}{moment['total'] / MIB:10.2f}")
    assert predicted.peak is not None
    print(f"predicted peak: {predicted.peak.what} at {predicted.peak.site}")
    print("allocator: " + ", ".join(f"{name} {count / MIB:.2f}" for name, count in found["stats"].items()))
    print(f"device memory taken since the start, all in all: {format_bytes(found['device_bytes_used'])}")
    for what, count in found["unnamed"].items():
        print(f"unnamed: {count} x {what}")


def print_values(measured: dict[str, list[dict[str, Any]]]) -> None:
    sums = {variant: ranks[0]["total"] for variant, ranks in measured.items()}
    first = next(iter(sums.values()))
    same = all(abs(one - first) <= 1e-5 * abs(first) for one in sums.values())
    print(f"\nparameters after the last step: {'the same sums' if same else f'DIFFERENT sums: {sums}'}")


def print_line(variant: str, settings: Settings, ranks: list[dict[str, Any]], *, cuda: bool) -> None:
    step = find_steps(variant)[0]
    for rank, found in enumerate(ranks):
        predicted = predict_step(step, world_size=WORLD_SIZE, sizes=settings.sizes(), rank=rank)
        assert predicted.steady is not None
        if not cuda:
            visible = {name: predicted.steady.by_role[role] for name, role in _SEEN.items()}
            told = "as predicted" if visible == found["seen"] else f"MISSED, predicted {visible}"
            print(f"{variant:20} rank {rank}: {told}: {found['seen']}")
            continue
        texts = []
        for when, (live, held) in moments_of(predicted, found).items():
            want, got, unnamed = totals(compare(variant, live, held))
            kept = abs(want / got - 1) <= PROMISED and unnamed <= PROMISED_UNNAMED
            texts.append(
                f"{when} {format_bytes(want)} predicted, {format_bytes(got)} measured ({want / got - 1:+.2%}), "
                f"unnamed {unnamed:.2%}: {'kept' if kept else 'MISSED'}"
            )
        print(f"{variant:20} rank {rank}: " + "; ".join(texts))


_SEEN = {"parameters": Role.PARAMETER, "gradients": Role.GRADIENT, "optimizer": Role.OPTIMIZER}


if __name__ == "__main__":
    main()
