"""Whether AllReduce may become ReduceScatter + AllGather on your machines, and what that costs.

The public names, in the order of the pipeline: describe, prove, predict, plan, run, judge. Each is loaded when it is
first used; importing this package imports neither torch nor anything else of ours.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rsag.analyze.verdict import judge as judge
    from rsag.collectives import COLLECTIVES as COLLECTIVES
    from rsag.collectives import Kind as Kind
    from rsag.compositions import COMPOSITIONS as COMPOSITIONS
    from rsag.interpreters.emit import emit as emit
    from rsag.interpreters.ledger import ledger as ledger
    from rsag.lab import Circumstances as Circumstances
    from rsag.lab import run_plan as run_plan
    from rsag.layout import ShardLayout as ShardLayout
    from rsag.layout import UnevenLayout as UnevenLayout
    from rsag.plan import make_plan as make_plan
    from rsag.programs import Composition as Composition
    from rsag.programs import Program as Program
    from rsag.programs import Recorder as Recorder
    from rsag.programs import record_all as record_all
    from rsag.proofs.prove import prove_all as prove_all
    from rsag.reduction import DType as DType
    from rsag.reduction import ReduceOp as ReduceOp
    from rsag.reduction import identity as identity

__version__ = "0.1.0"

_HOMES = {
    "COLLECTIVES": "rsag.collectives",
    "Kind": "rsag.collectives",
    "DType": "rsag.reduction",
    "ReduceOp": "rsag.reduction",
    "identity": "rsag.reduction",
    "ShardLayout": "rsag.layout",
    "UnevenLayout": "rsag.layout",
    "Recorder": "rsag.programs",
    "Composition": "rsag.programs",
    "Program": "rsag.programs",
    "record_all": "rsag.programs",
    "COMPOSITIONS": "rsag.compositions",
    "prove_all": "rsag.proofs.prove",
    "ledger": "rsag.interpreters.ledger",
    "emit": "rsag.interpreters.emit",
    "make_plan": "rsag.plan",
    "Circumstances": "rsag.lab",
    "run_plan": "rsag.lab",
    "judge": "rsag.analyze.verdict",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rsag' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
