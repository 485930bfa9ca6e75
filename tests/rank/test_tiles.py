"""Inputs and expected results of timed cases: what is promised, what a check sees, and what memory it takes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rsag.carriers.groups import Groups
from rsag.compositions import find
from rsag.interpreters import machine
from rsag.interpreters.exact import Exact
from rsag.programs import record_all
from rsag.rank.bench import LARGE_PAD_BYTES, Arm, most_bytes
from rsag.rank.compare_kernel import cut_in_vectors
from rsag.rank.inputs import contribution, oracle
from rsag.rank.tiles import PERIOD, Pieces, Scratch, Tiles
from rsag.records.latency import Case, Clock
from rsag.reduction import DType, Family, ReduceOp, why_undefined
from rsag.units import GIB, MIB

CPU = torch.device("cpu")
CHUNK = 3 * PERIOD
"""Elements of a chunk in these tests, where nothing else is said."""

NUMEL = 2 * CHUNK + 100
"""Two whole pieces and one that is uneven."""


def chunks_of(monkeypatch: pytest.MonkeyPatch, num_bytes: int) -> None:
    monkeypatch.setattr("rsag.rank.tiles._chunk_bytes", lambda device: num_bytes)


def tiled(chunk: Tensor, numel: int) -> Tensor:
    return chunk.repeat(-(-numel // chunk.numel()))[:numel]


def made(dtype: DType = DType.FLOAT32, numel: int = NUMEL) -> tuple[Tensor, Pieces, Scratch]:
    """A tensor that holds what its pieces expect."""
    chunk = Tiles(ReduceOp.SUM, dtype, 4, CPU).contributed(1, CHUNK)[:CHUNK]
    tensor = torch.empty(numel, dtype=chunk.dtype)
    pieces = Pieces(tensor, chunk)
    pieces.fill()
    return tensor, pieces, Scratch(chunk.numel(), chunk.dtype, CPU)


def num_wrong(pieces: Pieces, scratch: Scratch) -> int:
    total = torch.zeros((), dtype=torch.int64)
    pieces.count_wrong(scratch, total)
    return int(total)


# ---------------------------------------------------------------------------------------------------- what a check sees


@pytest.mark.parametrize("numel", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, NUMEL])
def test_what_is_filled_is_the_pattern_to_the_last_element(numel: int) -> None:
    tensor, pieces, scratch = made(numel=numel)
    chunk = Tiles(ReduceOp.SUM, DType.FLOAT32, 4, CPU).contributed(1, PERIOD)
    assert torch.equal(tiled(chunk, numel), tensor)
    assert 0 == num_wrong(pieces, scratch)


@pytest.mark.parametrize(
    "place", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK - 1, 2 * CHUNK, 2 * CHUNK + 1, NUMEL - 1]
)
def test_one_wrong_element_is_one_wherever_it_is(place: int) -> None:
    tensor, pieces, scratch = made()
    tensor[place] += 1
    assert 1 == num_wrong(pieces, scratch)


def test_wrong_elements_of_all_pieces_are_counted_and_the_count_goes_on() -> None:
    tensor, pieces, scratch = made()
    tensor[:: CHUNK // 2] -= 1
    total = torch.tensor(1000)
    pieces.count_wrong(scratch, total)
    assert 1005 == int(total)


def test_what_follows_the_result_is_not_looked_at() -> None:
    whole = torch.full((NUMEL + 7,), -1.0)
    chunk = Tiles(ReduceOp.SUM, DType.FLOAT32, 4, CPU).contributed(1, CHUNK)
    pieces = Pieces(whole[:NUMEL], chunk)
    pieces.fill()
    assert 0 == num_wrong(pieces, Scratch(chunk.numel(), chunk.dtype, CPU))
    assert [-1.0] * 7 == whole[NUMEL:].tolist()


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64])
def test_a_nan_is_wrong(dtype: DType) -> None:
    tensor, pieces, scratch = made(dtype)
    tensor[-1] = float("nan")
    assert 1 == num_wrong(pieces, scratch)


@pytest.mark.parametrize("dtype", [DType.UINT8, DType.INT16, DType.BFLOAT16, DType.FLOAT32, DType.INT64])
def test_any_wrong_bit_is_seen(dtype: DType) -> None:
    tensor, pieces, scratch = made(dtype)
    place = next(index for index in range(CHUNK, NUMEL) if tensor[index] > 1)  # the bits of 0 hold a sign
    bits = tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize])
    right = int(bits[place])
    for bit in range(8 * dtype.itemsize - 1):
        bits[place] = right ^ (1 << bit)
        assert 1 == num_wrong(pieces, scratch), f"bit {bit}"
    bits[place] = right
    assert 0 == num_wrong(pieces, scratch)


def test_minus_zero_is_zero() -> None:
    """Which of the two a sum gives depends on its order."""
    tensor, pieces, scratch = made()
    tensor[tensor == 0] = -0.0
    assert torch.signbit(tensor).any()
    assert 0 == num_wrong(pieces, scratch)


def test_a_stored_two_is_not_the_bool_that_it_looks_like() -> None:
    tensor, pieces, scratch = made(DType.BOOL)
    place = int(tensor.nonzero()[-1])
    tensor.view(torch.uint8)[place] = 2
    assert tensor[place]
    assert 1 == num_wrong(pieces, scratch)


REAL = [dtype for dtype in DType if dtype.family is not Family.COMPLEX]


@pytest.mark.parametrize("dtype", REAL)
def test_what_is_spoiled_is_wrong_in_every_element_of_every_dtype(dtype: DType) -> None:
    _, pieces, scratch = made(dtype)
    pieces.spoil()
    assert NUMEL == num_wrong(pieces, scratch)
    pieces.fill()
    assert 0 == num_wrong(pieces, scratch)


@pytest.mark.parametrize("world_size", [2, 3, 8, 64, 300])
@pytest.mark.parametrize("op", list(ReduceOp))
def test_the_input_is_not_the_result_on_any_rank(op: ReduceOp, world_size: int) -> None:
    """In place it is all that tells a call that does nothing; at a few elements on the rank that has the maximum."""
    for dtype in REAL:
        if why_undefined(op, dtype) is None:
            reduced = [value.real for value in oracle(op, dtype, world_size, PERIOD)]
            shares = [
                sum(contribution(op, dtype, world_size, rank, element) != reduced[element] for element in range(PERIOD))
                / PERIOD
                for rank in {0, 1, world_size - 1}
            ]
            assert min(shares) > 0, dtype
            assert max(shares) > 0.1, dtype


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("world_size", [2, 16, 64, 128, 256, 300])
def test_a_sum_differs_from_place_to_place_on_however_many_ranks(dtype: DType, world_size: int) -> None:
    assert len(set(map(str, oracle(ReduceOp.SUM, dtype, world_size, PERIOD)))) > 1


@pytest.mark.parametrize("dtype", [dtype for dtype in REAL if dtype is not DType.BOOL])
@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_a_shard_in_the_wrong_place_is_seen_at_the_sizes_that_people_choose(dtype: DType, world_size: int) -> None:
    """The values' own period may divide a shard: it is 64 for sums of bfloat16 on four ranks, and 2 for products."""
    for op in (ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MAX):
        expected = Tiles(op, dtype, world_size, CPU)
        for q in (64, 256, 1000, 16 * 1024, 256 * 1024):
            program = record_all(find("all_reduce"), world_size=world_size, numel=world_size * q, op=op)[0]
            [(_, stop, chunk)] = expected.promised(program)
            right = tiled(chunk, min(stop, 2 * q))
            share = (right[q:] != right[:q]).double().mean().item()
            assert share > 0.1, f"{op.value} of shards of {q}: {share:.0%} of the elements tell a shard from the next"


# -------------------------------------------------------------------------------------------------- what is promised


@pytest.mark.parametrize("name", ["all_reduce", "reduce_scatter", "reduce_scatter_in_place", "all_gather"])
@pytest.mark.parametrize("op", [ReduceOp.SUM, ReduceOp.MAX, ReduceOp.PRODUCT])
@pytest.mark.parametrize(("world_size", "q"), [(1, 5), (2, 700), (3, PERIOD), (4, 1500)])
def test_what_is_promised_is_what_exact_integers_give(
    name: str, op: ReduceOp, world_size: int, q: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks_of(monkeypatch, 1)  # one period then, which has to be repeated
    expected = Tiles(op, DType.FLOAT32, world_size, CPU)
    programs = record_all(find(name), world_size=world_size, numel=world_size * q, op=op)
    given = [tiled(expected.contributed(rank, world_size * q), world_size * q).tolist() for rank in range(world_size)]
    outcome = machine.run(programs, Exact(op, lambda rank, element: int(given[rank][element])))
    for program in programs:
        parts = expected.promised(program)
        stops = [stop for _, stop, _ in parts]
        assert [0, *stops[:-1]] == [start for start, _, _ in parts]
        promised = torch.cat([tiled(chunk, stop - start) for start, stop, chunk in parts])
        assert outcome.read(program.result) == promised.tolist()


@pytest.mark.parametrize("dtype", REAL)
def test_sums_are_exact_in_their_dtype(dtype: DType) -> None:
    for world_size in (2, 3, 8, 64):
        expected = Tiles(ReduceOp.SUM, dtype, world_size, CPU)
        exact = sum(expected.contributed(rank, PERIOD).to(torch.int64) for rank in range(world_size))
        [(_, _, chunk)] = expected.promised(
            record_all(find("all_reduce"), world_size=world_size, numel=PERIOD, op=ReduceOp.SUM)[0]
        )
        assert torch.equal((exact > 0).to(torch.int64) if dtype is DType.BOOL else exact, chunk.to(torch.int64))


# --------------------------------------------------------------------------------------------------------------- memory


class Allocated(TorchDispatchMode):
    """Notes the size of every storage that comes into being while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.nbytes: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [one for one in (*args, *(kwargs or {}).values()) if isinstance(one, Tensor)]
        known = {tensor.untyped_storage().data_ptr() for tensor in given}
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(tensor, Tensor) and tensor.untyped_storage().data_ptr() not in known:
                self.nbytes.append(tensor.untyped_storage().nbytes())
        return out


def kept_bytes(arm: Arm) -> int:
    """What an arm keeps beside the buffers of its programs, each storage once."""
    own = {tensor.untyped_storage().data_ptr() for bound in arm.sets for tensor in (bound.input, bound.result)}
    pieces = [*arm._inputs, *arm._results]
    tensors = [source for one in pieces for _, source in one._pairs] + [one._sums for one in pieces]
    tensors += [arm._scratch.mask, arm._scratch._xor, arm._wrong]
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(nbytes for pointer, nbytes in storages.items() if pointer not in own)


def large_arm(name: str, calls: int) -> Arm:
    """16 MiB."""
    programs = record_all(find(name), world_size=1, numel=16 * MIB // 4, op=ReduceOp.SUM)
    expected = Tiles(ReduceOp.SUM, DType.FLOAT32, 1, CPU)
    case = Case(bytes=16 * MIB, dtype=DType.FLOAT32, op=ReduceOp.SUM, clock=Clock.CPU, calls=calls)
    return Arm(programs[0], Groups(programs), expected, case, CPU, calls=calls)


@pytest.fixture
def chunk_bytes(monkeypatch: pytest.MonkeyPatch) -> int:
    chunks_of(monkeypatch, 4 * MIB)
    return 4 * MIB


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize("calls", [1, 3])
@pytest.mark.parametrize("name", ["rs_ag_in_place", "rs_ag_naive", "all_gather"])
def test_an_arm_keeps_no_more_than_it_is_said_to(name: str, calls: int, chunk_bytes: int) -> None:
    arm = large_arm(name, calls)
    program = record_all(find(name), world_size=1, numel=16 * MIB // 4, op=ReduceOp.SUM)[0]
    case = Case(bytes=16 * MIB, dtype=DType.FLOAT32, op=ReduceOp.SUM, clock=Clock.CPU, calls=calls)
    buffers = sum(tensor.nbytes for bound in arm.sets for tensor in bound._buffers.values())
    assert most_bytes(case, program, CPU) == buffers + 3 * chunk_bytes + 16 * MIB
    assert kept_bytes(arm) <= 3 * chunk_bytes + 1024


def test_the_null_arm_keeps_its_pad_alone() -> None:
    case = Case(bytes=GIB, dtype=DType.FLOAT32, op=ReduceOp.SUM, clock=Clock.CPU, calls=1)
    assert LARGE_PAD_BYTES == most_bytes(case, None, CPU)


@pytest.mark.usefixtures("one_rank", "chunk_bytes")
@pytest.mark.parametrize("name", ["rs_ag_in_place", "rs_ag_naive"])
def test_resetting_and_checking_allocate_nothing_but_single_numbers(name: str) -> None:
    arm = large_arm(name, calls=2)
    arm.reset()
    with Allocated() as allocated:
        arm.reset()
        arm.call()
        arm.check()
    assert set() == {nbytes for nbytes in allocated.nbytes if nbytes > 8}
    assert 0 == arm.num_wrong()


@pytest.mark.usefixtures("one_rank")
def test_counting_what_is_wrong_takes_less_than_a_chunk_at_a_time(chunk_bytes: int) -> None:
    arm = large_arm("rs_ag_in_place", calls=1)
    arm.reset()
    arm.sets[0].result.neg_()
    with Allocated() as allocated:
        arm.check()
    assert 5 == sum(nbytes > 8 for nbytes in allocated.nbytes)  # pieces, each a little less than 4 MiB
    assert max(allocated.nbytes) <= chunk_bytes / 4
    assert arm.num_wrong() > 0.9 * MIB * 4


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize("name", ["all_reduce", "rs_ag_naive", "reduce_scatter", "all_gather", "all_gather_in_place"])
def test_an_arm_keeps_three_chunks_whatever_its_calls(name: str, chunk_bytes: int) -> None:
    """What to fill with, what to expect, and what to compare in."""
    assert [True] * 2 == [kept_bytes(large_arm(name, calls)) <= 3 * chunk_bytes + 1024 for calls in (1, 3)]


@pytest.mark.parametrize("world_size", [1, 3, 8])
def test_the_parts_of_a_gather_share_one_chunk(world_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chunks_of(monkeypatch, 256 * PERIOD * 4)
    numel = world_size * 200 * PERIOD
    program = record_all(find("all_gather"), world_size=world_size, numel=numel, op=ReduceOp.SUM)[0]
    parts = Tiles(ReduceOp.SUM, DType.FLOAT32, world_size, CPU).promised(program)
    assert world_size == len(parts)
    assert 128 * PERIOD * 4 < sum(chunk.nbytes for _, _, chunk in parts) <= 256 * PERIOD * 4


# ----------------------------------------------------------------------------------------------- what the kernel takes


@pytest.mark.parametrize(
    ("expected", "num_bytes", "pattern_bytes", "addresses"),
    [
        ((64, 16), 1024, 256, (0, 512)),
        ((16, 16), 256, 1024, (0, 512)),
        ((2**31 - 1, 2**20), 32 * GIB - 16, 16 * MIB, (0, 0)),
        (None, 32 * GIB, 16 * MIB, (0, 0)),  # 2^31 vectors: a C int would be negative, and nothing compared
        (None, 64 * GIB + 1024, 16 * MIB, (0, 0)),  # 64 vectors, as a C int sees it
        (None, 32 * GIB - 16, 32 * GIB - 16, (0, 0)),  # the last block's threads are numbered beyond
        (None, 0, 256, (0, 0)),
        (None, 1032, 256, (0, 0)),
        (None, 1024, 264, (0, 0)),
        (None, 1024, 256, (8, 0)),
        (None, 1024, 256, (0, 4)),
    ],
)
def test_the_kernel_takes_aligned_vectors_that_a_c_int_can_count(
    expected: tuple[int, int] | None, num_bytes: int, pattern_bytes: int, addresses: tuple[int, int]
) -> None:
    assert expected == cut_in_vectors(num_bytes, pattern_bytes, *addresses)
