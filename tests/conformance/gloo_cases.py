"""Seeded cases of composition x operator x dtype x size, and what real ranks do with them. No torch until ranks run."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rsag.collectives import Kind
from rsag.compositions import COMPOSITIONS
from rsag.programs import Composition, Program, input_numel, record_all
from rsag.reduction import DType, ReduceOp

CARRIED = [composition for composition in COMPOSITIONS if not composition.symmetric]

INTEGERS = (DType.INT32, DType.INT64, DType.UINT8, DType.INT8)
FLOATS = (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64)
DTYPES = {
    **dict.fromkeys((ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX), (*INTEGERS, *FLOATS)),
    **dict.fromkeys((ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR), (*INTEGERS, DType.BOOL)),
    ReduceOp.AVG: FLOATS,
}
"""What Gloo can do (rsag env): it has no int16, and its SUM of bool is wrong."""


@dataclass(frozen=True, slots=True)
class Case:
    composition: Composition
    op: ReduceOp
    dtype: DType
    numel: int
    world_size: int

    def programs(self) -> tuple[Program, ...]:
        return record_all(self.composition, world_size=self.world_size, numel=self.numel, op=self.op)

    def given(self, rank: int) -> list[int]:
        """`rank`'s input; of an all_gather in place its own slice, among elements that must not be seen."""
        numel = input_numel(self.composition, self.numel, self.world_size)
        if self.composition.target is not Kind.ALL_GATHER or not self.composition.in_place:
            return [self.value(rank, element) for element in range(numel)]
        q = numel // self.world_size
        slices = [[1] * q for _ in range(self.world_size)]
        slices[rank] = [self.value(rank, element) for element in range(q)]
        return [value for one in slices for value in one]

    def value(self, rank: int, element: int) -> int:
        """A number of its own for each rank and element, so small that nothing rounds or overflows on the way."""
        if self.dtype is DType.BOOL:
            return int((rank + element) % 3 != 0)
        if self.op is ReduceOp.PRODUCT:
            return 1 + (rank + element) % 2
        if self.op is ReduceOp.AVG:
            return self.world_size * ((3 * rank + element) % 16)
        return (7 * rank + 5 * element) % (127 // self.world_size)

    def __str__(self) -> str:
        return f"{self.composition.name} {self.op.value} {self.dtype.value} x {self.numel} on {self.world_size}"


def cases(seed: int, world_size: int, num_cases: int) -> list[Case]:
    """The same cases wherever this is called: every composition in turn, the rest by chance."""
    return list(_cases(random.Random(seed), world_size, num_cases))


def _cases(chance: random.Random, world_size: int, num_cases: int) -> Iterator[Case]:
    for index in range(num_cases):
        composition = CARRIED[index % len(CARRIED)]
        op = chance.choice(
            [op for op in ReduceOp if composition.why_refused(0, world_size, op) is None]  # no AVG where it folds
        )
        numel = chance.choice([1, 2, world_size, chance.randrange(3, 60)]) * composition.multiple_of(world_size)
        yield Case(composition, op, chance.choice(DTYPES[op]), numel, world_size)


# ---------------------------------------------------------------------------------------------------------- on a rank


def main(arguments: Sequence[str]) -> None:
    """`main([directory, seed, num_cases])` leaves, case by case, what this rank got in each of the three ways."""
    import torch.distributed as dist

    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.FileStore(os.environ["RSAG_STORE"], world_size)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
    directory, seed, num_cases = arguments
    results = [_results(case, rank) for case in cases(int(seed), world_size, int(num_cases))]
    (Path(directory) / f"rank-{rank:04d}.json").write_text(json.dumps(results))
    dist.destroy_process_group()


def _results(case: Case, rank: int) -> dict[str, list[float]]:
    import torch

    from rsag.carriers.groups import Groups
    from rsag.carriers.owning import run_owning
    from rsag.carriers.pooled import Pooled
    from rsag.carriers.torch_types import torch_dtype
    from rsag.interpreters.emit import emit

    programs = case.programs()
    dtype = torch_dtype(case.dtype.value)
    given = torch.tensor(case.given(rank), dtype=dtype)
    with Groups(programs) as groups:
        bound = Pooled(programs[rank], groups, dtype=dtype)
        for _ in range(2):  # what a first run leaves behind must not show
            bound.result.view(torch.uint8).fill_(0xFF)
            bound.input.copy_(given)
            bound()
        owned = run_owning(programs[rank], given.clone(), groups)
    namespace: dict[str, Any] = {"__name__": "emitted"}
    exec(compile(emit(programs, case.dtype), case.composition.name, "exec"), namespace)
    emitted = namespace[case.composition.name](given.clone())
    return {
        name: [float(value) for value in tensor.tolist()]
        for name, tensor in (("pooled", bound.result), ("owning", owned), ("emitted", emitted))
    }
