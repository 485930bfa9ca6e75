"""Preloaded, this takes Linux's parent death signal away from ranks, as on systems that have none."""

from __future__ import annotations

from rsag.launch import child

child._kill_on_parent_death = lambda: False
