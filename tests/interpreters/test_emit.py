from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from rsag.compositions import COMPOSITIONS, find, peer, two_level
from rsag.errors import UsageError
from rsag.interpreters.emit import emit
from rsag.programs import Composition, Recorder, View, record_all
from rsag.reduction import DType, ReduceOp

EMITTED = [composition for composition in COMPOSITIONS if composition is not peer.PEER]
every_composition = pytest.mark.parametrize("composition", EMITTED, ids=lambda composition: composition.name)


def text_of(
    composition: Composition | str,
    world_size: int = 4,
    numel: int = 20,
    op: ReduceOp = ReduceOp.SUM,
    dtype: DType = DType.FLOAT32,
) -> str:
    found = find(composition) if isinstance(composition, str) else composition
    return emit(record_all(found, world_size=world_size, numel=numel, op=op), dtype)


def body_of(text: str, name: str) -> str:
    """The lines of one function, without its signature."""
    function = next(node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == name)
    return "\n".join(ast.unparse(statement) for statement in function.body)


@every_composition
@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 8])
def test_every_composition_is_one_file_that_needs_torch_alone(composition: Composition, world_size: int) -> None:
    text = text_of(composition, world_size, 5 * world_size)
    tree = ast.parse(text)
    imports = [alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names]
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]

    assert set(imports) <= {"functools", "torch", "torch.distributed"}
    assert composition.name == functions[-1]
    assert max(map(len, text.splitlines())) <= 120
    assert ("functools" in imports) is ("functools." in text)


@every_composition
@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_every_file_can_be_imported(composition: Composition) -> None:
    namespace: dict[str, object] = {"__name__": "emitted"}

    exec(compile(text_of(composition), composition.name, "exec"), namespace)

    assert callable(namespace[composition.name])


def test_in_place_reads_like_the_sentence_it_is() -> None:
    text = text_of("rs_ag_in_place")
    *_, cut, scatter, gather, give = body_of(text, "rs_ag_in_place").splitlines()

    assert len(text.splitlines()) < 40
    assert [cut, scatter, gather, give] == [
        "shard = full[rank * 5:(rank + 1) * 5]",
        "reduce_scatter_single(shard, full, dist.ReduceOp.SUM, group)",
        "all_gather_single(full, shard, group)",
        "return full",
    ]


def test_old_torch_is_served_by_the_older_names() -> None:
    text = text_of("rs_ag_naive")

    assert 'reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor' in text
    assert 'all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor' in text


def test_a_ring_addresses_chunks_and_neighbours_by_rank() -> None:
    body = body_of(text_of("ring_all_reduce"), "ring_all_reduce")

    assert "chunks = full.view(4, 5)" in body
    assert "dest = peers[(rank + 1) % world]" in body
    assert "sendrecv(staging, source, chunks[(rank - 1) % world], dest, group)\nchunks[(rank - 2) % world].add_" in body


def test_several_alike_are_numbered() -> None:
    body = body_of(text_of("rs_ag_chunked"), "rs_ag_chunked")

    assert "shard_3 = full[rank + 16:rank + 17]" in body
    assert body.endswith("work_0.wait()\nwork_1.wait()\nwork_2.wait()\nwork_3.wait()\nreturn full")


def test_all_subgroups_are_made_on_every_rank_in_one_order() -> None:
    body = body_of(text_of("two_level"), "two_level")

    assert "group_0 = subgroup((0, 1), (2, 3))" in body
    assert "group_1 = subgroup((0, 2), (1, 3))" in body
    assert "shard = full[(0, 10, 0, 10)[rank]:(10, 20, 10, 20)[rank]]" in body


def test_a_release_drops_the_name_and_says_what_that_is_worth() -> None:
    text = text_of("rs_ag_early_release")

    assert "    del full  # the memory goes when the caller has dropped it too\n    gathered = " in text
    assert "    del shard\n    return gathered\n" in text


def test_a_released_buffer_takes_its_views_along() -> None:
    def run(m: Recorder, full: View, op: str) -> View:
        part = full[m.rank : m.rank + 1]
        m.reduce_scatter(part, full, op)
        kept = m.allocate(m.world, "gathered")
        m.all_gather(kept, part)
        m.release(full)
        return kept

    text = text_of(Composition(name="kept", run=run, summary="", consumes=True), numel=4)

    assert "    del full, shard  # " in text


@pytest.mark.parametrize(
    ("op", "dtype", "value"),
    [
        (ReduceOp.SUM, DType.FLOAT32, "0.0"),
        (ReduceOp.AVG, DType.BFLOAT16, "0.0"),
        (ReduceOp.PRODUCT, DType.INT32, "1"),
        (ReduceOp.MIN, DType.FLOAT16, 'float("inf")'),
        (ReduceOp.MAX, DType.FLOAT64, 'float("-inf")'),
        (ReduceOp.MIN, DType.INT64, "torch.iinfo(torch.int64).max"),
        (ReduceOp.MAX, DType.UINT8, "torch.iinfo(torch.uint8).min"),
        (ReduceOp.MIN, DType.BOOL, "True"),
        (ReduceOp.BAND, DType.INT32, "-1"),
        (ReduceOp.BAND, DType.UINT8, "255"),
    ],
)
def test_padding_is_filled_with_the_identity_of_operator_and_dtype(op: ReduceOp, dtype: DType, value: str) -> None:
    assert f"padding[18:].fill_({value})" in text_of("rs_ag_padded", numel=18, op=op, dtype=dtype)


def test_padding_that_is_not_there_is_not_filled() -> None:
    assert "fill_" not in text_of("rs_ag_padded", numel=20)


@pytest.mark.parametrize(
    ("op", "dtype", "call"),
    [
        (ReduceOp.SUM, DType.FLOAT32, ".add_(staging)"),
        (ReduceOp.PRODUCT, DType.FLOAT32, ".mul_(staging)"),
        (ReduceOp.MAX, DType.FLOAT32, "torch.maximum(chunks[rank], staging, out=chunks[rank])"),
        (ReduceOp.MIN, DType.FLOAT32, "torch.minimum(chunks[rank], staging, out=chunks[rank])"),
        (ReduceOp.BXOR, DType.INT32, ".bitwise_xor_(staging)"),
        (ReduceOp.SUM, DType.BOOL, ".logical_or_(staging)"),
    ],
)
def test_each_operator_combines_in_place(op: ReduceOp, dtype: DType, call: str) -> None:
    assert call in text_of("ring_all_reduce", op=op, dtype=dtype)


def test_what_moves_nothing_is_left_out() -> None:
    body = body_of(text_of("rs_ag_chunked", numel=4), "rs_ag_chunked")

    assert (body.count("reduce_scatter_single("), body.count(".wait()")) == (1, 1)


# ------------------------------------------------------------------------------------------------------------ refused


def differs(m: Recorder, full: View, op: str) -> View:
    if m.rank == 0:
        m.fill(full, 0)
    m.all_reduce(full, op)
    return full


def applies(m: Recorder, full: View, op: str) -> View:
    m.apply("scale", full, full)
    return full


def reversed_group(m: Recorder, full: View, op: str) -> View:
    m.sub(range(m.world - 1, -1, -1)).all_reduce(full, op)
    return full


def only_sends(m: Recorder, full: View, op: str) -> View:
    m.sendrecv(None, None, full, (m.rank + 1) % m.world)
    return full


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (differs, "other instructions on other ranks"),
        (applies, "nothing is known about scale"),
        (reversed_group, "would sort"),
        (only_sends, "idle"),
        (peer.peer, "symmetric memory"),
    ],
)
def test_what_is_no_plain_text_for_all_ranks_is_refused(run: object, why: str) -> None:
    composition = Composition(name="odd", run=run, summary="", symmetric=True)  # type: ignore[arg-type]

    with pytest.raises(UsageError, match=why):
        text_of(composition)


def test_an_operator_without_meaning_on_the_dtype_is_refused() -> None:
    with pytest.raises(UsageError, match="bitwise operators are for integers"):
        text_of("all_reduce", op=ReduceOp.BAND, dtype=DType.FLOAT32)


# --------------------------------------------------------------------------------------------------------- real ranks

WORLD_SIZE = 4
MEMBERS = (1, 2, 3)
"""A group whose ranks are not global ranks, and whose size is no power of two."""

WORKER = """
import json, runpy, sys
from datetime import timedelta

import torch
import torch.distributed as dist

rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
store = dist.FileStore(f"{folder}/store", world)
dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=60))
cases = json.load(open(f"{folder}/cases.json"))
group = dist.new_group(cases["members"])
leave = dist.destroy_process_group
dist.init_process_group = dist.destroy_process_group = lambda *ignored: None  # each file's own check joins this launch


def formula(case, members, me):
    numel, size = case["numel"], len(members)
    every = [[100 * member + element for element in range(numel)] for member in members]
    reduced = [float(sum(column)) for column in zip(*every)]
    q = numel // size
    if case["target"] == "reduce_scatter":
        return reduced[me * q : (me + 1) * q]
    if case["target"] == "all_gather":
        return [float(x) for row in every for x in row[:q]]
    return reduced


def given(case, members, me):
    numel, q = case["numel"], case["numel"] // len(members)
    contribution = torch.arange(numel) + 100.0 * members[me]
    if case["target"] != "all_gather":
        return contribution
    if not case["in_place"]:
        return contribution[:q].clone()
    full = torch.full((numel,), -1.0)
    full[me * q : (me + 1) * q] = contribution[:q]
    return full


def run(case, members, *arguments):
    me = members.index(rank)
    function = runpy.run_path(case["path"])[case["name"]]
    result = function(given(case, members, me), *arguments)
    assert result.tolist() == formula(case, members, me), (case, result)


for case in cases["world"]:
    run(case, list(range(world)))
for path in cases["checks"]:
    runpy.run_path(path, run_name="__main__")
if rank in cases["members"]:
    for case in cases["group"]:
        run(case, cases["members"], group)
leave()
"""


def write_case(folder: Path, composition: Composition, world_size: int) -> dict[str, object]:
    numel = (4 if composition.multiple_of(world_size) > 1 else 1) * world_size
    numel += composition.multiple_of(world_size) == 1  # one element more than divides
    path = folder / f"{composition.name}_{world_size}.py"
    path.write_text(text_of(composition, world_size, numel))
    return {
        "path": str(path),
        "name": composition.name,
        "target": composition.target.value,
        "in_place": composition.in_place,
        "numel": numel,
    }


def write_cases(folder: Path) -> None:
    checks = []
    for name, op, dtype in (
        ("rs_ag_padded", ReduceOp.MAX, DType.FLOAT32),
        ("rs_ag_padded", ReduceOp.MIN, DType.INT64),
        ("rs_ag_padded", ReduceOp.AVG, DType.FLOAT32),
        ("rs_ag_padded", ReduceOp.BAND, DType.INT32),
        ("ring_all_reduce", ReduceOp.PRODUCT, DType.FLOAT64),
        ("ring_all_reduce", ReduceOp.SUM, DType.BOOL),
        ("ring_reduce_scatter", ReduceOp.MAX, DType.INT8),
    ):
        path = folder / f"check_{name}_{op.value}_{dtype.value}.py"
        path.write_text(text_of(name, WORLD_SIZE, 18 if "padded" in name else 20, op, dtype))
        checks.append(str(path))
    world = [write_case(folder, composition, WORLD_SIZE) for composition in EMITTED]
    group = [write_case(folder, c, len(MEMBERS)) for c in EMITTED if c is not two_level.TWO_LEVEL]  # it takes no group
    checks += [str(case["path"]) for case in world]
    cases = {"members": MEMBERS, "world": world, "checks": checks, "group": group}
    (folder / "cases.json").write_text(json.dumps(cases))
    (folder / "worker.py").write_text(WORKER)


@pytest.mark.multirank
@pytest.mark.timeout(170)
@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_real_ranks_get_what_the_formula_says(tmp_path: Path) -> None:
    write_cases(tmp_path)
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(tmp_path / "worker.py"), str(rank), str(WORLD_SIZE), str(tmp_path)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
        )
        for rank in range(WORLD_SIZE)
    ]
    try:
        errors = [process.communicate(timeout=150)[1] for process in ranks]
    finally:
        for process in ranks:
            process.kill()

    assert [process.returncode for process in ranks] == [0] * WORLD_SIZE, "\n".join(errors)
