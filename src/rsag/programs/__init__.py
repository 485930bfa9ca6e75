"""The protocol that compositions are written in, and the straight-line programs that recording them gives."""

from rsag.programs.instructions import (
    IDENTITY,
    Alloc,
    Instruction,
    Local,
    LocalKind,
    Release,
    Role,
    Start,
    View,
    Wait,
)
from rsag.programs.program import Composition, Program, input_numel, record, record_all
from rsag.programs.recorder import Recorder

__all__ = [
    "IDENTITY",
    "Alloc",
    "Composition",
    "Instruction",
    "Local",
    "LocalKind",
    "Program",
    "Recorder",
    "Release",
    "Role",
    "Start",
    "View",
    "Wait",
    "input_numel",
    "record",
    "record_all",
]
