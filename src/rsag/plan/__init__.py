"""Plans: what will be run, with what the ledger predicts of it."""

from rsag.plan.make import make_plan
from rsag.plan.write import write_plan

__all__ = ["make_plan", "write_plan"]
