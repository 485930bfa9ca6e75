"""A composition as one file of plain torch, for a bug report or for those who trust no wrapper.

What comes out needs torch alone (2.5 or newer) and is one text for all ranks: their programs are laid side by side, and
a number that differs between them becomes an expression in `rank` and `world`.
"""

from __future__ import annotations

from collections.abc import Sequence

from rsag.collectives import Kind
from rsag.errors import UsageError
from rsag.interpreters.emit_check import check
from rsag.interpreters.emit_function import FunctionText
from rsag.programs import Alloc, Instruction, Local, LocalKind, Program, Release, Start, Wait
from rsag.reduction import DType, why_undefined

_RENAMED = {
    Kind.REDUCE_SCATTER: ("reduce_scatter_single", "reduce_scatter_tensor"),
    Kind.ALL_GATHER: ("all_gather_single", "all_gather_into_tensor"),
}
"""What torch calls them since 2.13, and what before: the old names warn on every call."""

_SENDRECV = """
def sendrecv(out, source, inp, dest, group):
    # Both in one batch: a send that waits for its receive, issued before the receive, never ends.
    ops = [dist.P2POp(dist.isend, inp, dest, group), dist.P2POp(dist.irecv, out, source, group)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
"""

_SUBGROUP = """
@functools.cache
def subgroup(*groups):
    # new_group is collective: every rank makes all of them, in one order, and keeps its own.
    made = [dist.new_group(ranks) for ranks in groups]
    return next(group for group, ranks in zip(made, groups) if dist.get_rank() in ranks)
"""


def emit(programs: Sequence[Program], dtype: DType = DType.FLOAT32) -> str:
    """The text of a Python file that defines `programs`' composition as a function and checks it under torchrun.

    `programs` are all ranks', in rank order. Raises UsageError where the operator means nothing on `dtype`, where ranks
    run different kinds of instructions, and for what torch.distributed has no portable call for: memory of peers
    (symmetric memory is CUDA only), an `apply`, a subgroup in another than ascending order.
    """
    first = programs[0]
    reason = why_undefined(first.op, dtype)
    if reason is not None:
        raise UsageError(f"{first.op.value} cannot be emitted for {dtype.value}: {reason}")
    columns = list(zip(*(program.code for program in programs)))
    if len({len(program.code) for program in programs}) > 1 or any(len(set(map(_shape, c))) > 1 for c in columns):
        raise UsageError(f"{first.composition} runs other instructions on other ranks", expected="one text for all")
    for program in programs:
        _refuse_foreign(program)
    function = FunctionText(programs, columns, dtype)
    parts = [*_helpers(function), function.lines(), check(programs, dtype)]
    text = "\n\n\n".join("\n".join(part) for part in parts)
    head = _head(first, dtype, with_functools="functools." in text)
    return "\n".join(head) + "\n\n\n" + text + "\n"


def _head(first: Program, dtype: DType, *, with_functools: bool) -> list[str]:
    flags = f"--world-size {first.world_size} --numel {first.numel} --op {first.op.value} --dtype {dtype.value}"
    kinds = {step.kind for step in first.code if isinstance(step, Start)}
    renamed = [
        f'{new} = getattr(dist, "{new}", None) or dist.{old}' for kind, (new, old) in _RENAMED.items() if kind in kinds
    ]
    return [
        f'"""{first.composition} in plain torch: torchrun --nproc-per-node {first.world_size} FILE checks it."""',
        "",
        f"# rsag emit {first.composition} {flags}",
        *(["import functools", ""] if with_functools else []),
        "import torch",
        "import torch.distributed as dist",
        *(["", "# Named so since torch 2.13, where the older name warns.", *renamed] if renamed else []),
    ]


def _helpers(function: FunctionText) -> list[list[str]]:
    wanted = [_SENDRECV] if Kind.SENDRECV in function.kinds else []
    wanted += [_SUBGROUP] if function.has_subgroups else []
    return [text.strip().split("\n") for text in wanted]


def _shape(step: Instruction) -> tuple[object, ...]:
    """What must be the same on all ranks for one text to do."""
    if isinstance(step, Alloc):
        return Alloc, step.view.buffer, step.role
    if isinstance(step, Release):
        return Release, step.view.buffer
    if isinstance(step, Local):
        return Local, step.kind, step.dst.buffer, tuple(view.buffer for view in step.src), step.argument
    if isinstance(step, Start):
        buffers = tuple(None if view is None else view.buffer for view in (step.out, step.inp))
        return Start, step.kind, buffers, step.op, step.token, step.blocking
    return Wait, step.token


def _refuse_foreign(program: Program) -> None:
    """Refuse what torch.distributed has no portable call for."""
    for step in program.code:
        why = None
        if isinstance(step, Local) and any(view.rank != program.rank for view in step.src):
            why = "it reads memory of peers, which torch has on CUDA only (symmetric memory)"
        elif isinstance(step, Local) and step.kind is LocalKind.APPLY:
            why = f"nothing is known about {step.argument}"
        elif isinstance(step, Start) and step.kind is Kind.SENDRECV and None in (step.inp, step.out):
            why = "one side of a sendrecv is idle"
        elif isinstance(step, Start) and step.group != tuple(sorted(step.group)):
            why = f"new_group would sort the subgroup {step.group}"
        if why is not None:
            raise UsageError(f"{program.composition} cannot be emitted as plain torch.distributed: {why}")
