"""Where the traces are that the readers are tried on."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

Find = Callable[[str], Path]


@pytest.fixture(scope="session")
def public() -> Find:
    """`public("nsys/mock.sqlite")`: a published trace, which is not kept in this repository; skips where it is absent.

    The samples lie in `../shared/public` beside the project, or where RSAG_PUBLIC_TRACES says.
    """
    folder = Path(os.environ.get("RSAG_PUBLIC_TRACES") or ROOT.parent / "shared" / "public")

    def find(name: str) -> Path:
        path = folder / name
        if not path.exists():
            pytest.skip(f"the public sample {name} is not in {folder}; RSAG_PUBLIC_TRACES names another folder")
        return path

    return find


@pytest.fixture(scope="session")
def recorded() -> Find:
    """`recorded("fr_ok.rank0.pkl")`: one of our own recordings."""
    return (ROOT / "tests" / "data" / "traces").joinpath
