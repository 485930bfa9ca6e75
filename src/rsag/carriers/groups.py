"""The process groups that a set of programs needs, made once, in one order on every rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch.distributed as dist

from rsag.carriers.torch_api import TorchApi, api
from rsag.errors import UsageError
from rsag.programs import Program, Start

Ranks = tuple[int, ...]


class Groups:
    """Maps the ranks that programs speak of to process groups. Program rank i is the i-th rank of `base`.

    Making one is collective over the default group: every rank gives the programs of *all* ranks, so that all subgroups
    are known, and made, in one order everywhere. Close it, or each subgroup keeps its sockets.
    """

    def __init__(self, programs: Sequence[Program], base: Any = None, torch_api: TorchApi | None = None) -> None:
        self.api = torch_api or api()
        self.base_ranks: Ranks = tuple(self.api.group_ranks(base))
        self.rank = self.base_ranks.index(dist.get_rank())
        whole = tuple(range(len(self.base_ranks)))
        self._groups: dict[Ranks, Any] = {whole: base}
        self._made: list[Any] = []
        wanted = {step.group for program in programs for step in program.code if isinstance(step, Start)} - {whole}
        for ranks in wanted:
            if max(ranks) >= len(whole):
                raise UsageError(
                    "a program for more ranks than the group has", got=ranks, expected=f"{len(whole)} ranks"
                )
        try:
            for ranks in sorted(wanted):
                self._groups[ranks] = self.api.new_group([self.global_rank(rank) for rank in ranks])
                self._made.append(self._groups[ranks])
        except BaseException:
            self.close()
            raise

    def group(self, ranks: Ranks) -> Any:
        """The process group of these program ranks; the default group is None, as torch wants it."""
        if ranks not in self._groups:
            raise UsageError("no group was made for a program", got=ranks, do="give Groups the programs of all ranks")
        return self._groups[ranks]

    def used_by(self, program: Program) -> list[Any]:
        """The process groups that `program` calls its collectives in, each once, in the order of their making."""
        ranks = {step.group for step in program.code if isinstance(step, Start)}
        return [group for own, group in self._groups.items() if own in ranks]

    def global_rank(self, rank: int) -> int:
        """What torch calls program rank `rank`."""
        return self.base_ranks[rank]

    def close(self) -> None:
        """Destroy the subgroups that were made here."""
        while self._made:
            group = self._made.pop()
            if group is not dist.GroupMember.NON_GROUP_MEMBER:
                dist.destroy_process_group(group)

    def __enter__(self) -> Groups:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
