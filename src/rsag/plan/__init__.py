"""Plans: what will be run, with what the ledger predicts of it."""

from rsag.plan.make import make_plan

__all__ = ["make_plan"]
