"""`import rsag`: what it offers, and what it does not load."""

from __future__ import annotations

import subprocess
import sys

import pytest

import rsag


@pytest.mark.parametrize("name", rsag.__all__)
def test_each_public_name_is_there(name: str) -> None:
    assert getattr(rsag, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        rsag.nothing  # noqa: B018


def test_importing_loads_nothing_else_of_ours() -> None:
    code = "import sys, rsag; print([name for name in sys.modules if name.startswith(('rsag.', 'torch'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "[]" == done.stdout.strip()
