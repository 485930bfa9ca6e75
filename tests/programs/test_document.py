"""programs.json gives back every program as it was, or says which entry it cannot read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rsag.compositions import COMPOSITIONS, find
from rsag.compositions.mutants import MUTANTS
from rsag.errors import ProgramError, RecordError
from rsag.programs import Composition, Program, record_all
from rsag.programs.document import dump_programs, load_programs, pack, unpack
from rsag.reduction import ReduceOp

EVERY = [*COMPOSITIONS, *(mutant.composition for mutant in MUTANTS)]


def programs_of(composition: Composition, world_size: int, numel: int, op: ReduceOp) -> tuple[Program, ...]:
    if composition.why_refused(numel, world_size, op) is not None:
        return ()
    try:
        return record_all(composition, world_size=world_size, numel=numel, op=op)
    except ProgramError:  # some mutants are refused before there is a program
        return ()


@pytest.mark.parametrize("composition", EVERY, ids=lambda composition: composition.name)
def test_every_program_comes_back_through_json(composition: Composition) -> None:
    recorded = [
        program
        for world_size in (1, 2, 3, 4)
        for numel in (0, 1, world_size + 1, 3 * world_size)
        for op in (ReduceOp.SUM, ReduceOp.AVG)
        for program in programs_of(composition, world_size, numel, op)
    ]
    assert recorded == [unpack(json.loads(json.dumps(pack(program)))) for program in recorded]


def test_a_file_of_programs_comes_back(tmp_path: Path) -> None:
    programs = tuple(
        program
        for composition in COMPOSITIONS
        for program in record_all(composition, world_size=4, numel=20, op=ReduceOp.MAX)
    )
    dump_programs(programs, tmp_path / "programs.json")
    assert programs == load_programs(tmp_path / "programs.json")


def test_a_view_is_a_list_of_four_numbers() -> None:
    [_, program] = record_all(find("rs_ag_in_place"), world_size=2, numel=6, op=ReduceOp.SUM)
    packed = pack(program)
    assert ([1, 0, 0, 6], [1, 0, 0, 6]) == (packed["input"], packed["result"])
    scatter: dict[str, Any] = packed["code"][1]  # type: ignore[index]
    expected = {"do": "start", "kind": "reduce_scatter", "out": [1, 0, 3, 6], "inp": [1, 0, 0, 6], "group": [0, 1]}
    assert expected == {key: scatter[key] for key in expected}


# ------------------------------------------------------------------------------------------------------------ corrupt


def corrupt(change: dict[str, object], *, step: int | None = None) -> dict[str, Any]:
    packed: dict[str, Any] = pack(record_all(find("rs_ag_padded"), world_size=2, numel=3, op=ReduceOp.SUM)[0])
    packed = json.loads(json.dumps(packed))
    (packed if step is None else packed["code"][step]).update(change)
    return packed


@pytest.mark.parametrize(
    ("packed", "words"),
    [
        (corrupt({"op": "plus"}), "'plus' is not a valid ReduceOp"),
        (corrupt({"target": "scatter"}), "'scatter' is not a valid Kind"),
        (corrupt({"result": [0, 1]}), "View"),
        (corrupt({"extra": 1}), "'extra'"),
        (corrupt({"code": None}), "NoneType"),
        (corrupt({"do": "jump"}, step=0), "'jump'"),
        (corrupt({"role": "spare"}, step=0), "'spare' is not a valid Role"),
        (corrupt({"view": "all"}, step=0), "invalid literal"),
        ({}, "'code'"),
    ],
)
def test_what_is_no_program_is_an_error_that_says_where(packed: dict[str, Any], words: str) -> None:
    with pytest.raises(RecordError, match=f"(?s)^here: not a recorded program; got .*{words}"):
        unpack(packed, where="here")


def test_an_error_names_file_and_entry(tmp_path: Path) -> None:
    path = tmp_path / "programs.json"
    dump_programs(record_all(find("all_reduce"), world_size=3, numel=3, op=ReduceOp.SUM), path)
    document = json.loads(path.read_text())
    document["programs"][2]["code"][1]["kind"] = "all_reduced"
    path.write_text(json.dumps(document))
    with pytest.raises(RecordError, match=r"programs\.json: programs\[2\]: not a recorded program"):
        load_programs(path)
