"""A page that is open in a browser, as tests look at it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page


@dataclass
class Opened:
    """A page, and all that it complained of or asked for since it was opened."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def draw_all(self) -> None:
        """Have every plot drawn, as for printing, and leave open and closed what was so."""
        self.page.evaluate("for (const name of ['beforeprint', 'afterprint']) dispatchEvent(new Event(name))")


Open = Callable[..., Opened]
