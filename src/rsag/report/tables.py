"""How every table looks: no boxes, a rule under the head, and marks that do not rest on colour."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

MARKS: dict[str, tuple[str, str]] = {
    "good": ("✓", "green"),
    "bad": ("✗", "bold red"),
    "warn": ("!", "yellow"),
    "none": ("·", "dim"),
}
"""Mark and style of each kind of outcome."""


def plain_table() -> Table:
    return Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold", collapse_padding=True)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """rich would exit with 1, which means refuted here."""
        raise BrokenPipeError


def console(*, stderr: bool = False) -> Console:
    """Where tables go; names and paths in them are left as they are."""
    return _Console(stderr=stderr, highlight=False, emoji=False, markup=False)
