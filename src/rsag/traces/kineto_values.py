"""Single values of a Kineto event: times without loss, arguments, and what they say of a collective."""

from __future__ import annotations

import functools
import json
import math
import re
from decimal import Decimal

import msgspec

from rsag.traces.blocks import Event
from rsag.traces.events import Metadata
from rsag.traces.skips import int64, printable

_LAST_NS, _LONGEST_US = 1 << 62, 1 << 42  # a start and a duration together fit 64 bits; the latter is exact in a double
_LONGEST_INTEGER = len("-9223372036854775808")
_POINT = ord(".")  # three digits before the end: Kineto's own way to write a time, worth a way of its own
_RANKS = re.compile(r"\[\s*\d{1,9}(?:\s*,\s*\d{1,9})*\s*\]")
_ARGUMENTS = msgspec.json.Decoder(dict[str, object])

# Where an operator has what goes in and what comes out, among its arguments: torch/csrc/distributed/c10d/Ops.cpp.
# Lists of lists, as in allgather_, are never written out.
_OPERANDS: dict[str, tuple[int | None, int | None]] = {
    "c10d::allreduce_": (0, 0),
    "c10d::allreduce_coalesced_": (0, 0),
    "c10d::broadcast_": (0, 0),
    "c10d::reduce_": (0, 0),
    "c10d::allgather_": (1, None),
    "c10d::_allgather_base_": (1, 0),
    "c10d::allgather_into_tensor_coalesced_": (1, 0),
    "c10d::reduce_scatter_": (None, 0),
    "c10d::_reduce_scatter_base_": (1, 0),
    "c10d::reduce_scatter_tensor_coalesced_": (1, 0),
    "c10d::alltoall_base_": (1, 0),
    "c10d::recv_": (None, 0),
    "gloo:all_reduce": (0, 0),
    "nccl:all_reduce": (0, 0),
}

# How "Input type" spells what record_param_comms calls by c10's names.
_DTYPES = {
    "float": "Float",
    "double": "Double",
    "c10::Half": "Half",
    "c10::BFloat16": "BFloat16",
    "long": "Long",
    "long int": "Long",
    "int": "Int",
    "short": "Short",
    "short int": "Short",
    "unsigned char": "Byte",
    "signed char": "Char",
    "bool": "Bool",
}


class InvalidRowError(Exception):
    """A row that cannot be used, in words for the quarantine."""


def times(event: Event) -> tuple[int, int]:
    """Start and end in nanoseconds, as the file counts them. Raises InvalidRowError for what cannot be."""
    if event.ph != "X":
        raise InvalidRowError("not a complete event: no start with a duration")
    start, duration_us = _start(bytes(event.ts)), event.dur
    if duration_us is not None and 0 <= duration_us <= _LONGEST_US and 0 <= start <= _LAST_NS:
        return start, start + int(duration_us * 1000 + 0.5)
    if duration_us is None:
        raise InvalidRowError("no duration")
    if start < 0 or duration_us < 0:
        raise InvalidRowError("negative timestamp" if start < 0 else "negative duration")
    raise InvalidRowError("a time beyond 64 bits")


def timestamp(event: Event) -> int:
    """The one time of an event of any kind, in nanoseconds. Raises InvalidRowError for what cannot be."""
    start = _start(bytes(event.ts))
    if 0 <= start <= _LAST_NS:
        return start
    raise InvalidRowError("a negative timestamp" if start < 0 else "a time beyond 64 bits")


def _start(text: bytes) -> int:
    try:
        return int(text.replace(b".", b"")) if text[-4] == _POINT else _nanoseconds(text)
    except (IndexError, ValueError):
        return _nanoseconds(text)


def _nanoseconds(text: bytes) -> int:
    """Microseconds in nanoseconds, whatever JSON allows; never by a double, which cannot hold today's."""
    if not text or text == b"null":
        raise InvalidRowError("no timestamp")
    try:
        exact = Decimal(text.decode()) * 1000
    except (ArithmeticError, ValueError):
        raise InvalidRowError("a timestamp that is not a number") from None
    return int(exact.to_integral_value()) if abs(exact) <= _LAST_NS else _LAST_NS + 1


def arguments(event: Event) -> dict[str, object]:
    """A row's args, none where it has none. Raises InvalidRowError for what is no object."""
    text = bytes(event.args)
    try:
        return _ARGUMENTS.decode(text) if text else {}
    except (msgspec.DecodeError, RecursionError):
        pass
    try:  # an event is decoded without looking at what is in its args: bad UTF-8, numbers without an end
        args = json.loads(text.decode("utf-8", "replace"), strict=False, parse_int=_integer)
    except (ValueError, RecursionError):
        args = None
    if isinstance(args, dict):
        return args
    raise InvalidRowError("args that are no object")


def _integer(text: str) -> int | None:
    return int(text) if len(text) <= _LONGEST_INTEGER else None


def collective_of_record(args: dict[str, object]) -> Metadata | None:
    """What record_param_comms says, on its own row or on the kernel's that it is copied to; None if it does not."""
    collective = args.get("Collective name")
    if not isinstance(collective, str):
        return None
    group = args.get("Process Group Name", args.get("Process Group ID"))
    ranks = args.get("Process Group Ranks")
    return _metadata(
        collective=printable(collective),
        in_numel=int64(args.get("In msg nelems", args.get("In msg size"))),  # elements in both, also in torch 2.2
        out_numel=int64(args.get("Out msg nelems", args.get("Out msg size"))),
        dtype=_text(args.get("dtype")),
        group=None if group is None else printable(str(group)),
        group_size=int64(args.get("Group size")),
        group_ranks=_ranks(ranks) if isinstance(ranks, str) else None,
        sequence=int64(args.get("Seq")),
    )


def collective_of_operator(name: str, args: dict[str, object]) -> Metadata:
    """What an operator's or annotation's name and shapes say of a collective: shapes only with record_shapes."""
    shapes, types = args.get("Input Dims"), args.get("Input type")
    if not isinstance(shapes, list) or not isinstance(types, list):
        return _metadata(collective=printable(name))
    operands = list(zip(shapes, types))
    input_at, output_at = _OPERANDS.get(name, (0, None))
    given = operands[input_at] if input_at is not None and input_at < len(operands) else (None, None)
    result = operands[output_at] if output_at is not None and output_at < len(operands) else (None, None)
    dtype = given[1] if isinstance(given[1], str) else ""
    return _metadata(collective=name, in_numel=_numel(*given), out_numel=_numel(*result), dtype=_DTYPES.get(dtype))


@functools.lru_cache(maxsize=4096)
def _metadata(
    *,
    collective: str,
    in_numel: int | None = None,
    out_numel: int | None = None,
    dtype: str | None = None,
    group: str | None = None,
    group_size: int | None = None,
    group_ranks: tuple[int, ...] | None = None,
    sequence: int | None = None,
) -> Metadata:
    """One object for the many calls that are alike."""
    return Metadata(
        collective=collective,
        in_numel=in_numel,
        out_numel=out_numel,
        dtype=dtype,
        group=group,
        group_size=group_size,
        group_ranks=group_ranks,
        sequence=sequence,
    )


def _numel(shape: object, type_: object) -> int | None:
    """Elements in a tensor of this shape, or in a list of tensors; older torch writes [] for any list."""
    if not isinstance(shape, list) or (type_ == "TensorList" and not shape):
        return None
    if type_ == "TensorList":
        numels = [_numel(one, None) for one in shape]
        return sum(numel for numel in numels if numel is not None) if None not in numels else None
    lengths = [int64(length) for length in shape]
    return int64(math.prod(length for length in lengths if length is not None)) if None not in lengths else None


@functools.lru_cache(maxsize=256)
def _ranks(text: str) -> tuple[int, ...] | None:
    """The ranks of a group; None for a large group, whose list torch cuts short."""
    return tuple(int(rank) for rank in text.strip("[] ").split(",")) if _RANKS.fullmatch(text) else None


def _text(value: object) -> str | None:
    return printable(value) if isinstance(value, str) else None
