"""What a carrier adds to one collective call: the pooled one at most 1 us, the owning one printed beside it.

torch's fake process group stands in for a backend: its calls cost what torch costs and move nothing, so that what is
left is ours. Every arm makes the same torch calls on tensors of the same sizes, checked before anything is timed. A
round runs short blocks of all arms in a random order and then in its mirror image; its figure is the difference to the
bare calls *of that round*. The clock is the thread's CPU time: nothing here waits, and a busy machine would otherwise
add whole time slices to one arm or another.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import comb
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from environment import describe
from torch import Tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from rsag.carriers.groups import Groups
from rsag.carriers.owning import run_owning
from rsag.carriers.pooled import Pooled
from rsag.carriers.torch_api import TorchApi, api
from rsag.compositions import find
from rsag.programs import Program, Start
from rsag.programs.program import record_all
from rsag.reduction import ReduceOp

PROMISE_US = 1.0
RANK, WORLD_SIZE, NUMEL = 1, 4, 64
SUM = dist.ReduceOp.SUM
CALLS_PER_BLOCK = 96
BARE, AGAIN, POOLED, OWNING = "bare", "bare again", "pooled", "owning"

Run = Callable[[], object]


def all_reduce(torch_api: TorchApi, full: Tensor) -> Run:
    reduce = torch_api.all_reduce

    def run() -> None:
        reduce(full, SUM, None, False)

    return run


def in_place(torch_api: TorchApi, full: Tensor) -> Run:
    scatter, gather = torch_api.reduce_scatter, torch_api.all_gather
    mine = full.chunk(WORLD_SIZE)[RANK]

    def run() -> None:
        scatter(mine, full, SUM, None, False)
        gather(full, mine, None, False)

    return run


def naive(torch_api: TorchApi, full: Tensor) -> Run:
    scatter, gather = torch_api.reduce_scatter, torch_api.all_gather
    mine, gathered = torch.zeros(NUMEL // WORLD_SIZE), torch.zeros(NUMEL)  # made once, as the pooled carrier does

    def run() -> None:
        scatter(mine, full, SUM, None, False)
        gather(gathered, mine, None, False)

    return run


def chunked(torch_api: TorchApi, full: Tensor) -> Run:
    scatter, gather = torch_api.reduce_scatter, torch_api.all_gather
    parts = [(part, part.chunk(WORLD_SIZE)[RANK]) for part in full.chunk(4)]

    def run() -> None:
        works = []
        for part, mine in parts:
            scatter(mine, part, SUM, None, False)
            works.append(gather(part, mine, None, True))
        for work in works:
            work.wait()  # type: ignore[union-attr]

    return run


def ring(torch_api: TorchApi, full: Tensor) -> Run:
    batch, shards = torch_api.batch_isend_irecv, full.chunk(WORLD_SIZE)
    left, right = (RANK - 1) % WORLD_SIZE, (RANK + 1) % WORLD_SIZE
    incoming = torch.zeros(NUMEL // WORLD_SIZE)

    def ops(send: Tensor, receive: Tensor) -> list[Any]:
        return [torch_api.send_op(send, right), torch_api.recv_op(receive, left)]

    steps = range(WORLD_SIZE - 1)
    scatters = [
        (ops(shards[(RANK - 1 - s) % WORLD_SIZE], incoming), shards[(RANK - 2 - s) % WORLD_SIZE]) for s in steps
    ]
    gathers = [ops(shards[(RANK - s) % WORLD_SIZE], shards[(RANK - 1 - s) % WORLD_SIZE]) for s in steps]

    def run() -> None:
        for sendrecv, own in scatters:
            for work in batch(sendrecv):
                work.wait()
            own.add_(incoming)
        for sendrecv in gathers:
            for work in batch(sendrecv):
                work.wait()

    return run


BY_HAND: dict[str, Callable[[TorchApi, Tensor], Run]] = {
    "all_reduce": all_reduce,
    "rs_ag_in_place": in_place,
    "rs_ag_naive": naive,
    "rs_ag_chunked": chunked,
    "ring_all_reduce": ring,
}


def require_same_calls(programs: Sequence[Program]) -> None:
    """Both forms issue the same calls, in one order, on views that lie alike; AssertionError where not."""
    name = programs[RANK].composition
    by_hand, carried = CallLog(), CallLog()
    BY_HAND[name](by_hand.api(), torch.zeros(NUMEL))()
    with Groups(programs, torch_api=carried.api()) as groups:
        Pooled(programs[RANK], groups, dtype=torch.float32)()
    assert by_hand.calls == carried.calls, f"{name}: by hand {by_hand.calls}, pooled {carried.calls}"


class CallLog:
    """Notes each call and where its tensors lie: which storage, in the order of first use, at which offset."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._storages: dict[int, int] = {}

    def api(self) -> TorchApi:
        """torch's own functions, each noted before it is called."""
        functions: dict[str, Any] = {name: partial(self._call, name) for name in api().names}
        return replace(api(), **functions)

    def _call(self, name: str, *args: Any) -> Any:
        self.calls.append((name, *map(self._place, args)))
        return getattr(api(), name)(*args)

    def _place(self, argument: Any) -> Any:
        if isinstance(argument, Tensor):
            address = argument.untyped_storage().data_ptr()
            storage = self._storages.setdefault(address, len(self._storages))
            return storage, argument.storage_offset(), argument.numel()
        if isinstance(argument, list):
            return [(op.op.__name__, self._place(op.tensor), op.peer) for op in argument]
        return argument


def make_arms(program: Program, groups: Groups) -> dict[str, Run]:
    """The same composition four times; `bare` and `bare again` are one function, whose difference is the floor."""
    pooled = Pooled(program, groups, dtype=torch.float32)
    pooled.input.zero_()
    bare = BY_HAND[program.composition](groups.api, pooled.input)
    kept = torch.zeros(NUMEL)

    def owning() -> None:
        run_owning(program, torch.zeros(NUMEL) if program.consumes else kept, groups)

    return {BARE: bare, AGAIN: bare, POOLED: pooled, OWNING: owning}


def time_round(
    arms: Mapping[str, Run], num_runs: int, rng: random.Random, clock: Callable[[], int] = time.thread_time_ns
) -> dict[str, float]:
    """Nanoseconds of one run of each arm, over two blocks of `num_runs`: a random order, then its mirror image."""
    order = rng.sample(list(arms), len(arms))
    spent_ns = dict.fromkeys(arms, 0)
    for name in (*order, *reversed(order)):
        run = arms[name]
        start = clock()
        for _ in range(num_runs):
            run()
        spent_ns[name] += clock() - start
    return {name: ns / (2 * num_runs) for name, ns in spent_ns.items()}


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """The two order statistics that enclose the median with at least 95 % confidence, whatever the distribution.

    Takes at least six values: the range of five covers it in 93.75 % only.
    """
    ordered, n = sorted(values), len(values)
    rank, tail = 0, 1
    while tail <= 0.025 * 2**n:
        rank += 1
        tail += comb(n, rank)
    if rank == 0:
        raise ValueError(f"a 95 % interval of the median takes six values or more, got {n}")
    return ordered[rank - 1], ordered[n - rank]


def verdict(low_us: float, high_us: float) -> str:
    """Whether the promise is kept, as far as the interval can tell."""
    if high_us <= PROMISE_US:
        return "kept"
    return "MISSED" if low_us > PROMISE_US else "cannot tell"


def measure(name: str, num_rounds: int, rng: random.Random) -> str:
    """One line of the table."""
    programs = record_all(find(name), world_size=WORLD_SIZE, numel=NUMEL, op=ReduceOp.SUM)
    require_same_calls(programs)
    num_calls = sum(isinstance(step, Start) for step in programs[RANK].code)
    num_runs = CALLS_PER_BLOCK // num_calls
    with Groups(programs) as groups:
        arms = make_arms(programs[RANK], groups)
        time_round(arms, num_runs, rng)  # warms up
        rounds = []
        gc.collect()
        for _ in range(num_rounds):
            gc.disable()
            rounds.append(time_round(arms, num_runs, rng))
            gc.enable()

    def added_us(arm: str) -> list[float]:
        return [(one[arm] - one[BARE]) / num_calls / 1e3 for one in rounds]

    pooled_low, pooled_high = median_interval(added_us(POOLED))
    return (
        f"{name:<16}{num_calls:>5}{median(one[BARE] for one in rounds) / num_calls / 1e3:>8.2f}"
        f"{max(map(abs, median_interval(added_us(AGAIN)))):>7.2f}{median(added_us(POOLED)):>8.2f}"
        f"{f'{pooled_low:.2f} to {pooled_high:.2f}':>16}  {verdict(pooled_low, pooled_high):<11}"
        f"{median(added_us(OWNING)):>7.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a fifth of the rounds")
    parser.add_argument("--seed", type=int, default=0, help="starts the order of the blocks")
    options = parser.parse_args()
    num_rounds, rng = 100 if options.quick else 500, random.Random(options.seed)
    warnings.simplefilter("ignore")  # some versions of torch warn on every call: a cost of theirs, in every arm
    dist.init_process_group("fake", store=FakeStore(), rank=RANK, world_size=WORLD_SIZE)
    print(f"Microseconds per collective call, {WORLD_SIZE} fake ranks, medians of {num_rounds} rounds")
    print(describe())
    print(f"\n{'':<16}{'':>5}{'':>8}{'floor':>7}{'pooled':>8}{'95 % interval':>16}  {'promise:':<11}{'owning':>7}")
    print(
        f"{'':<16}{'calls':>5}{'bare':>8}{'+-':>7}{'adds':>8}{'of that':>16}  {f'<= {PROMISE_US:g} us':<11}{'adds':>7}"
    )
    for name in BY_HAND:
        print(measure(name, num_rounds, rng), flush=True)
    print("\nfloor: bare against itself; owning also allocates, naive a new input each time")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
