"""Starts ranks on this host, ends them all when one fails, and says which one and why."""

from rsag.launch.local import STORE_VARIABLE, ForkServer, OnEvent, run_ranks
from rsag.launch.messages import Outcome, RankDeath, RankStart
from rsag.launch.report import LaunchReport, failure

__all__ = [
    "STORE_VARIABLE",
    "ForkServer",
    "LaunchReport",
    "OnEvent",
    "Outcome",
    "RankDeath",
    "RankStart",
    "failure",
    "run_ranks",
]
