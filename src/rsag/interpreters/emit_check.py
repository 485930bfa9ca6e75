"""The last lines of an emitted file: run under torchrun it compares the composition with what its target promises."""

from __future__ import annotations

from collections.abc import Sequence

from rsag.collectives import Kind
from rsag.programs import Program
from rsag.reduction import DType, ReduceOp

_REDUCED = {
    ReduceOp.SUM: "every.sum(0)",
    ReduceOp.AVG: "every.mean(0)",
    ReduceOp.PRODUCT: "every.prod(0)",
    ReduceOp.MIN: "every.amin(0)",
    ReduceOp.MAX: "every.amax(0)",
    ReduceOp.BAND: "functools.reduce(torch.bitwise_and, every)",
    ReduceOp.BOR: "functools.reduce(torch.bitwise_or, every)",
    ReduceOp.BXOR: "functools.reduce(torch.bitwise_xor, every)",
}


def check(programs: Sequence[Program], dtype: DType) -> list[str]:
    """The `__main__` block: every rank knows all contributions, and so what it must get, without any collective."""
    first = programs[0]
    gathers, scatters = first.target is Kind.ALL_GATHER, first.target is Kind.REDUCE_SCATTER
    q = first.numel // first.world_size
    numel = q if gathers else first.numel
    name, own = first.composition, f"[rank * {q} : (rank + 1) * {q}]"
    # A product of numbers as large as the others would overflow.
    fill = (
        f"(torch.arange({numel}) + r) % 2 + 1" if first.op is ReduceOp.PRODUCT else f"100 * r + torch.arange({numel})"
    )
    # torch's own sum and prod widen integers; the collective does not.
    reduced = f"{_REDUCED[first.op]}.to(every.dtype)" + (own if scatters else "")
    wanted = "every.flatten()" if gathers else reduced
    given = "every[rank].clone()"
    lines = []
    if gathers and first.in_place:
        given = "full"
        lines = [f"full = torch.zeros({first.numel}, dtype=every.dtype, device=device)", f"full{own} = every[rank]"]
    lines = [
        'dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")',
        "rank, world = dist.get_rank(), dist.get_world_size()",
        'device = torch.device("cpu")',
        "if torch.cuda.is_available():",
        '    device = torch.device("cuda", rank % torch.cuda.device_count())',
        "    torch.cuda.set_device(device)",
        f"every = torch.stack([{fill} for r in range(world)]).to(device, torch.{dtype.value})",
        *lines,
        f"result = {name}({given})",
        f"torch.testing.assert_close(result, {wanted})",
        f'print(f"rank {{rank}} of {{world}}: {name} is right")',
        "dist.destroy_process_group()",
    ]
    return ['if __name__ == "__main__":', *(f"    {line}" for line in lines)]
