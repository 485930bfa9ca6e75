"""programs.json: recorded programs as data, so that a report needs no code that made them.

A view is the list [rank, buffer, start, stop]; an instruction is an object whose "do" names its type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

from rsag.collectives import Kind
from rsag.errors import RecordError
from rsag.programs.instructions import Alloc, Instruction, Local, LocalKind, Release, Role, Start, View, Wait
from rsag.programs.program import Program
from rsag.records.codec import dump_document, load_document
from rsag.reduction import ReduceOp

_TYPES: dict[str, type] = {cls.__name__.lower(): cls for cls in (Alloc, Release, Local, Start, Wait)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """The document: each program as packed by `pack`."""

    schema: ClassVar[str] = "programs"
    version: ClassVar[int] = 1

    programs: tuple[dict[str, object], ...]


def dump_programs(programs: tuple[Program, ...], path: Path) -> None:
    dump_document(Programs(programs=tuple(pack(program) for program in programs)), path)


def load_programs(path: Path) -> tuple[Program, ...]:
    """The programs in `path`; RecordError names the file and the program that cannot be read."""
    packed = load_document(Programs, path).programs
    return tuple(unpack(program, where=f"{path}: programs[{index}]") for index, program in enumerate(packed))


def pack(program: Program) -> dict[str, object]:
    """`program` as JSON-able data."""
    packed = _pack_fields(program)
    packed["code"] = [{"do": type(step).__name__.lower(), **_pack_fields(step)} for step in program.code]
    return packed


def unpack(packed: Mapping[str, object], *, where: str = "program") -> Program:
    """The program that `pack` made `packed` of; RecordError says where it is not one."""
    try:
        data: dict[str, Any] = dict(packed)
        code = tuple(_unpack_step(dict(step)) for step in data.pop("code"))
        return Program(code=code, **_unpack_fields(Program, data))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecordError(f"{where}: not a recorded program", got=f"{type(error).__name__}: {error}") from error


def _pack_fields(value: Any) -> dict[str, object]:
    return {field.name: _pack_value(getattr(value, field.name)) for field in fields(value) if field.name != "code"}


def _pack_value(value: object) -> object:
    if isinstance(value, View):
        return [value.rank, value.buffer, value.start, value.stop]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_pack_value(item) for item in value]
    return value


def _unpack_step(data: dict[str, Any]) -> Instruction:
    cls = _TYPES[data.pop("do")]
    if cls is Local:
        data["argument"] = _argument(data["kind"], data["argument"])
        data["kind"] = LocalKind(data["kind"])
    step: Instruction = cls(**_unpack_fields(cls, data))
    return step


def _argument(kind: str, value: Any) -> Any:
    return ReduceOp(value) if kind == LocalKind.COMBINE.value else value


def _view(value: Any) -> View | None:
    return None if value is None else View(*(int(part) for part in value))


_UNPACK: dict[str, Callable[[Any], object]] = {
    "view": _view,
    "dst": _view,
    "out": _view,
    "inp": _view,
    "input": _view,
    "result": _view,
    "src": lambda views: tuple(_view(view) for view in views),
    "group": tuple,
    "role": Role,
    "op": lambda name: None if name is None else ReduceOp(name),
    "target": Kind,
}


def _unpack_fields(cls: type, data: dict[str, Any]) -> dict[str, Any]:
    unpacked: dict[str, Any] = {}
    for name, value in data.items():
        if name == "kind" and cls is Start:
            unpacked[name] = Kind(value)
        else:
            unpacked[name] = _UNPACK[name](value) if name in _UNPACK else value
    return unpacked
