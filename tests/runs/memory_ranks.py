"""Ranks of the memory experiment that have too little memory. Imported in ranks only, by name."""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from pathlib import Path

from rsag.rank.__main__ import main


def starved(arguments: Sequence[str]) -> int:
    """Rank 1 of a run may have so many more bytes of address space than it has now; the others as many as they like."""
    room, *others = arguments
    if os.environ["RANK"] == "1":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + int(room)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    return main(others)
