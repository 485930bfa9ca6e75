"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from rsag.errors import UsageError, unknown_name
from rsag.reduction import DType, ReduceOp

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")


def parse_op(text: str) -> ReduceOp:
    """A reduction operator by name, in any case."""
    name = text.strip().lower()
    try:
        return ReduceOp(name)
    except ValueError:
        raise unknown_name("operator", text, (op.value for op in ReduceOp)) from None


def parse_ops(text: str) -> tuple[ReduceOp, ...]:
    """Operators by name, separated by commas, each once."""
    return tuple(dict.fromkeys(parse_op(name) for name in text.split(",")))


def parse_dtype(text: str) -> DType:
    """An element type by torch's name, in any case."""
    try:
        return DType(text.strip().lower())
    except ValueError:
        raise unknown_name("dtype", text, (dtype.value for dtype in DType)) from None


def parse_world_size(value: int) -> int:
    if value < 1:
        raise UsageError("a world has at least one rank", got=value, expected="1 or more")
    return value


def print_json(document: Any) -> None:
    json.dump(document, sys.stdout, indent=1, allow_nan=False)
    sys.stdout.write("\n")
