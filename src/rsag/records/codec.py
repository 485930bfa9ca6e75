"""Frozen dataclasses to JSON documents and back, strictly: what is read is what was written, or an error names the key.

The type hints are the schema. Known: None, bool, int, float, str, Path, Enum, Literal, dataclasses, `tuple[X, ...]`,
fixed tuples, `dict[str, X]`, `object` (free JSON: lists and dicts stay as they are), and unions whose members differ in
JSON type or, for dataclasses, in `kind: Literal["..."]`. Other hints raise TypeError when first met: that is a
mistake in a schema, not in a file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from pathlib import Path, PurePath
from types import NoneType, UnionType
from typing import (
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Protocol,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from rsag.errors import RecordError, RsagError, RunFailedError

T = TypeVar("T")
# Where a value sits: the file's name, then one (parent, step) per level. Joined to text only when something is wrong.
Trail: TypeAlias = "tuple[Trail, str | int] | str"

_JSON_WORDS: dict[type, str] = {
    NoneType: "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


class Document(Protocol):
    """A dataclass that is a file of its own: `schema` and `version` lead the file and are checked first."""

    schema: ClassVar[str]
    version: ClassVar[int]


D = TypeVar("D", bound=Document)


def encode(value: object, *, where: str = "") -> object:
    """`value` as JSON-able data: dataclasses become dicts in field order, enums their values, tuples lists, paths text.

    Raises RecordError, naming the path, for a number that is not finite, a key that is not a string, an unknown type.
    """
    return _encode(value, where)


def decode(cls: type[T], data: object, *, where: str = "") -> T:
    """The `cls` that `data`, as parsed from JSON, describes in full: no key unknown, none missing, no type bent.

    Fields with defaults may be absent; an integer is taken for a float, a boolean never for a number.
    Raises RecordError that names `where` and the path, such as `plan.json: arms[2].composition: unknown key 'foo'`.
    """
    return cast(T, _shape(cast(Any, cls)).decode(data, where))


def document(value: Document, *, where: str = "") -> dict[str, object]:
    """`value` as JSON-able data, led by its schema and version."""
    fields = cast("dict[str, object]", encode(value, where=where))
    return {"schema": value.schema, "version": value.version, **fields}


def dump_document(value: Document, path: Path) -> None:
    """Write `value` to `path` whole or not at all: a reader sees the old file or the new one, never half of one."""
    text = json.dumps(document(value, where=str(path)), indent=1, allow_nan=False)
    # Not tempfile: its files are readable by their owner only, and run directories are shared.
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise RunFailedError(f"{path}: cannot be written", got=error.strerror) from error


def load_document(cls: type[D], path: Path) -> D:
    """The `cls` in the file `path`, if schema, version and every key are as in this release; else RecordError."""
    data = parse_json(read_bytes(path), where=str(path))
    fields = check_header(data, schema=cls.schema, version=cls.version, where=str(path))
    return decode(cls, fields, where=str(path))


def read_bytes(path: Path) -> bytes:
    """The content of `path`; RecordError where it is not there or cannot be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise RecordError(f"{path}: not there", do="see whether the run got that far, and was copied whole") from error
    except OSError as error:
        raise RecordError(f"{path}: cannot be read", got=error.strerror) from error


def check_header(data: object, *, schema: str, version: int, where: str) -> dict[str, object]:
    """The fields of `data` without its schema and version, once those are the expected ones; else RecordError."""
    if not isinstance(data, dict):
        raise RecordError(f"{where}: not an object", got=_describe(data), expected="an object with schema and version")
    for key in ("schema", "version"):
        if key not in data:
            raise RecordError(f"{where}: missing key {key!r}", do="is this a file that rsag wrote?")
    if data["schema"] != schema:
        raise RecordError(f"{where}: another schema", got=_describe(data["schema"]), expected=json.dumps(schema))
    if type(data["version"]) is not int or data["version"] != version:
        do = "written by another release of rsag; run it again with this one, or read it with that one"
        raise RecordError(f"{where}: another version", got=_describe(data["version"]), expected=version, do=do)
    return {key: value for key, value in data.items() if key not in ("schema", "version")}


def parse_json(text: bytes, *, where: str, line: int | None = None) -> object:
    """`text` parsed as RFC 8259 has it, and stricter: no NaN, no number beyond a double, no key twice.

    `line` is the number of the line in a file of rows, None for a whole file.
    Raises RecordError with line and column; one that says "truncated" where the JSON ends early.
    """
    try:
        return _STRICT_JSON.decode(text.decode("utf-8"))
    except json.JSONDecodeError as error:
        cut = _CUT_TOKEN.match(error.doc, error.pos) or _CUT_ESCAPE.search(error.doc)
        ends_early = cut or error.msg.startswith("Unterminated string")
        what = "truncated, the JSON ends early" if ends_early else "not JSON"
        place = f"line {(line or 1) + error.lineno - 1}, column {error.colno}"
        raise RecordError(f"{where}: {what}: {place}: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        place = where if line is None else f"{where}: line {line}"
        raise RecordError(f"{place}: not JSON that rsag writes", got=error) from error


# What may be left of a token where a file was cut: of a literal or a number, and of an escape inside a string.
_CUT_TOKEN = re.compile(r"(?:t|tr|tru|f|fa|fal|fals|n|nu|nul|-|\.|[eE][+-]?)?\s*\Z")
_CUT_ESCAPE = re.compile(r"\\u[0-9a-fA-F]{0,4}\Z")


def _refuse_constant(literal: str) -> object:
    raise ValueError(f"the number {literal}")


def _finite_float(literal: str) -> float:
    number = float(literal)
    if math.isinf(number):
        raise ValueError(f"the number {literal}, which no double holds")
    return number


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    keys = dict(pairs)
    if len(keys) != len(pairs):
        names = [key for key, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} twice")
    return keys


_STRICT_JSON = json.JSONDecoder(
    parse_constant=_refuse_constant, parse_float=_finite_float, object_pairs_hook=_unique_keys
)


def _encode(value: object, at: Trail) -> object:
    if isinstance(value, Enum):
        return _encode(value.value, at)
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _error(at, "not a finite number", got=value, expected="a number that JSON has a word for")
        return value
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, (tuple, list)):
        return [_encode(item, (at, index)) for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {_encode_key(key, at): _encode(item, (at, key)) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _encode(getattr(value, field.name), (at, field.name)) for field in dataclasses.fields(value)
        }
    raise _error(at, "cannot be recorded", got=f"a {type(value).__name__}", expected="what the codec knows")


def _encode_key(key: object, at: Trail) -> str:
    if type(key) is not str:
        raise _error(at, "cannot be recorded", got=f"the key {key!r}", expected="keys that are strings")
    return key


class _Shape(NamedTuple):
    """A type hint, compiled: the JSON types it takes, and how data of one of these becomes the value."""

    json_types: tuple[type, ...]
    build: Callable[[Any, Trail], object]

    def decode(self, data: object, at: Trail) -> object:
        if type(data) not in self.json_types:
            raise _error(at, "wrong type", got=_describe(data), expected=self.words())
        return self.build(data, at)

    def words(self) -> str:
        return " or ".join(word for json_type, word in _JSON_WORDS.items() if json_type in self.json_types)


@functools.cache
def _shape(hint: Any) -> _Shape:
    origin, args = get_origin(hint), get_args(hint)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if origin in (Union, UnionType):
        return _union(args)
    if origin is Literal:
        return _choice({(type(value), value): value for value in args})
    if origin is tuple:
        return _row(_shape(args[0])) if args[1:] == (...,) else _fixed_tuple([_shape(arg) for arg in args])
    if origin in (dict, Mapping) and args[0] is str:
        return _mapping(_shape(args[1]))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _choice({(type(member.value), member.value): member for member in hint})
    if dataclasses.is_dataclass(hint):
        return _Shape((dict,), functools.partial(_build_dataclass, hint))
    raise TypeError(f"the codec knows no such type: {hint!r}")


def _as_it_is(data: object, at: Trail) -> object:  # noqa: ARG001
    return data


def _build_float(data: float, at: Trail) -> float:
    # False for NaN and infinities, and exact for integers that no double holds.
    if not abs(data) <= sys.float_info.max:
        raise _error(at, "not a finite number", got=_describe(data), expected="a number that a double holds")
    return float(data)


_PLAIN: dict[object, _Shape] = {
    **{json_type: _Shape((json_type,), _as_it_is) for json_type in (NoneType, bool, int, str)},
    float: _Shape((int, float), _build_float),
    Path: _Shape((str,), lambda data, at: Path(data)),  # noqa: ARG005
    object: _Shape(tuple(_JSON_WORDS), _as_it_is),
    Any: _Shape(tuple(_JSON_WORDS), _as_it_is),
}


def _choice(members: dict[tuple[type, Any], object]) -> _Shape:
    """One of a few scalars, found by type and value: True equals 1."""

    def build_choice(data: object, at: Trail) -> object:
        if (type(data), data) not in members:
            raise _unknown_value(at, data, [value for _, value in members])
        return members[type(data), data]

    return _Shape(tuple({json_type for json_type, _ in members}), build_choice)


def _row(item: _Shape) -> _Shape:
    def build_row(data: list[object], at: Trail) -> object:
        return tuple([item.decode(value, (at, index)) for index, value in enumerate(data)])

    return _Shape((list,), build_row)


def _fixed_tuple(items: list[_Shape]) -> _Shape:
    def build_fixed_tuple(data: list[object], at: Trail) -> object:
        if len(data) != len(items):
            raise _error(at, "wrong length", got=len(data), expected=len(items))
        return tuple([item.decode(data[index], (at, index)) for index, item in enumerate(items)])

    return _Shape((list,), build_fixed_tuple)


def _mapping(item: _Shape) -> _Shape:
    def build_mapping(data: dict[str, object], at: Trail) -> object:
        return {key: item.decode(value, (at, key)) for key, value in data.items()}

    return _Shape((dict,), build_mapping)


def _union(members: tuple[Any, ...]) -> _Shape:
    """Chooses the member by the JSON type of the data alone, so that decoding never guesses and never tries twice."""
    dataclass_members: list[Any] = [member for member in members if dataclasses.is_dataclass(member)]
    shapes = [_shape(member) for member in members if not dataclasses.is_dataclass(member)]
    if len(dataclass_members) > 1:
        shapes.append(_tagged(dataclass_members))
    else:
        shapes.extend(map(_shape, dataclass_members))
    # Beside an int, a float leaves integers to it: what was written as one comes back as one.
    float_types = (float,) if int in members else (int, float)
    claims = [(t, s) for s in shapes for t in (float_types if s is _PLAIN[float] else s.json_types)]
    table = dict(claims)
    if len(table) != len(claims):
        raise TypeError(f"members of a union share a JSON type: {members}")
    return _Shape(tuple(table), lambda data, at: table[type(data)].build(data, at))


def _tagged(classes: list[Any]) -> _Shape:
    tags = [(tag, cls) for cls in classes for tag in get_args(_hints(cls).get("kind"))]
    by_kind = {tag: _shape(cls) for tag, cls in tags}
    if len(by_kind) != len(tags) or {cls for _, cls in tags} != set(classes):
        raise TypeError(f'dataclasses in a union need a kind: Literal["..."] of their own: {classes}')

    def build_tagged(data: dict[str, object], at: Trail) -> object:
        if "kind" not in data:
            raise _error(at, "missing key 'kind'", expected=_alternatives(by_kind))
        kind = _PLAIN[str].decode(data["kind"], (at, "kind"))
        if kind not in by_kind:
            raise _unknown_value((at, "kind"), kind, by_kind)
        return by_kind[kind].build(data, at)

    return _Shape((dict,), build_tagged)


_hints = functools.cache(get_type_hints)


@functools.cache
def _fields(cls: Any) -> tuple[dict[str, _Shape], frozenset[str]]:
    """The shape of each field, and the names without a default. Compiled at the first use: a class may hold itself."""
    fields = dataclasses.fields(cls)
    missing = dataclasses.MISSING
    required = {field.name for field in fields if field.default is missing and field.default_factory is missing}
    return {field.name: _shape(_hints(cls)[field.name]) for field in fields}, frozenset(required)


def _build_dataclass(cls: Any, data: dict[str, object], at: Trail) -> object:
    shapes, required = _fields(cls)
    if not data.keys() <= shapes.keys():
        unknown = next(key for key in data if key not in shapes)
        raise _error(at, f"unknown key {unknown!r}", expected=f"one of {', '.join(shapes)}")
    if not required <= data.keys():
        raise _error(at, f"missing key {next(key for key in shapes if key in required - data.keys())!r}")
    values = {key: shapes[key].decode(value, (at, key)) for key, value in data.items()}
    try:
        return cls(**values)
    except (ValueError, RsagError) as error:  # what a __post_init__ has against the values
        raise _error(at, str(error)) from error


def _error(at: Trail, what: str, *, got: object = None, expected: object = None) -> RecordError:
    steps = ""
    while isinstance(at, tuple):
        at, step = at
        steps = (f".{step}" if isinstance(step, str) and step.isidentifier() else f"[{step!r}]") + steps
    return RecordError(": ".join(filter(None, (at, steps.removeprefix("."), what))), got=got, expected=expected)


def _unknown_value(at: Trail, data: object, known: Iterable[object]) -> RecordError:
    return _error(at, "unknown value", got=_describe(data), expected=_alternatives(known))


def _alternatives(known: Iterable[object]) -> str:
    return f"one of {', '.join(map(json.dumps, known))}"


def _describe(data: object) -> str:
    """`data` as people read it in an error: its JSON type, and its text where that is short."""
    word = _JSON_WORDS.get(type(data), type(data).__name__)
    if data is None or isinstance(data, (list, dict)):
        return word
    text = json.dumps(data) if isinstance(data, (str, bool)) else repr(data)
    return f"{word} {text if len(text) <= 60 else text[:57] + '...'}"
