"""What the library's own log says of kernels: algorithm, protocol and channels, which no name of today tells."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from rsag.analyze.executed import Executed
from rsag.analyze.words import word
from rsag.collectives import Kind
from rsag.records.protocol import Choice

# Bytes of the dtypes that files name: torch's words and c10's, in lower case.
_ITEM_BYTES: dict[str, int] = {
    **dict.fromkeys(("byte", "char", "bool", "uint8", "int8", "float8_e4m3fn", "float8_e5m2"), 1),
    **dict.fromkeys(("half", "bfloat16", "float16", "short", "int16", "uint16"), 2),
    **dict.fromkeys(("float", "float32", "int", "int32", "uint32"), 4),
    **dict.fromkeys(("double", "float64", "long", "int64", "uint64"), 8),
}
_TAIL = re.compile(r"_(RING|TREE|NVLS_TREE|NVLS|COLLNET\w*|PAT)_(LL128|LL|SIMPLE)\b", re.IGNORECASE)


class Chosen:
    """The choices of a log, found by function, bytes and order.

    Where all choices for one function and size are alike, that is the answer; where not, the n-th kernel of that kind
    has the n-th choice if there are as many of each, and any of them otherwise.
    """

    def __init__(self, choices: Sequence[Choice], executed: Iterable[Executed]) -> None:
        logged: dict[tuple[str, int], list[Choice]] = defaultdict(list)
        for choice in choices:
            collective = word(choice.function)
            if collective is not None:
                logged[collective, choice.bytes].append(choice)
        kinds: dict[tuple[str, int], list[Executed]] = defaultdict(list)
        for one in executed:
            key = _key(one)
            if key is not None:
                kinds[key].append(one)
        self._of: dict[int, tuple[Choice, ...]] = {}
        for key, kernels in kinds.items():
            there = logged.get(key, [])
            in_order = len(there) == len(kernels)
            for position, one in enumerate(kernels):
                choices_of_it = [there[position]] if in_order else there
                self._of[id(one)] = tuple(dict.fromkeys(choices_of_it))

    def of(self, kernels: Iterable[Executed]) -> tuple[Choice, ...]:
        """The choices for `kernels`, each once; nothing where no log tells."""
        return tuple(dict.fromkeys(choice for one in kernels for choice in self._of.get(id(one), ())))


def _key(one: Executed) -> tuple[str, int] | None:
    """Collective and NCCL's own bytes: of ReduceScatter and AllGather one rank's shard."""
    metadata = one.metadata
    size = _ITEM_BYTES.get((metadata.dtype or "").lower().removeprefix("torch."))
    numel = metadata.out_numel if one.collective == Kind.REDUCE_SCATTER.value else metadata.in_numel
    if one.collective is None or size is None or numel is None:
        return None
    return one.collective, numel * size


def disagreement(kernel: str, choices: Sequence[Choice]) -> str | None:
    """`name says RING LL, the log says RING SIMPLE`; None where the name's tail is what the log says."""
    tail = _TAIL.search(kernel)
    how = dict.fromkeys(choice.how for choice in choices if choice.how)
    if tail is None or not how or list(how) == [(tail[1].upper(), tail[2].upper())]:
        return None
    said = " or ".join(" ".join(one) for one in how)
    return f"name says {tail[1].upper()} {tail[2].upper()}, the library's log says {said}"
