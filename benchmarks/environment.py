"""What every table of figures says about where it was made. A library: run by itself it prints nothing."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def describe() -> str:
    """torch, Python, processor and how busy it is, in one line; imports no torch."""
    try:
        torch = version("torch")
    except PackageNotFoundError:
        torch = "none"
    return (
        f"torch {torch}, Python {platform.python_version()}, {_processor()} x {os.cpu_count()}, "
        f"load {os.getloadavg()[0]:.1f}"
    )


def _processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())
