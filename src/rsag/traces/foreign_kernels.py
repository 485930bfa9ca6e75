"""Communication kernels that are not NCCL's: who wrote them, and what their names say."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rsag.records.kernels import Claim, ClaimAbout

_TYPES = {
    "float": "float32",
    "half": "float16",
    "__half": "float16",
    "nv_half": "float16",
    "Half": "float16",
    "__nv_bfloat16": "bfloat16",
    "nv_bfloat16": "bfloat16",
    "BFloat16": "bfloat16",
}
_TEMPLATE_TYPE = re.compile(r"<\s*(?:\w+::)*(\w+)")
_NOT_SAID = "its name does not say"
_OWN_NAME = "named for one collective"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKernel:
    """Kernels of one library. `collective` None where they are no collective of NCCL's, or the name does not say."""

    library: str
    pattern: str  # found anywhere in a name, mangled or not
    collective: str | None = None
    op: str | None = None
    method: str | None = None
    why: str = _NOT_SAID  # what the claims rest on, or why there are none

    def claims(self, name: str) -> tuple[Claim, ...]:
        """One about each of ClaimAbout's."""
        word = _TEMPLATE_TYPE.search(name)
        dtype = _TYPES.get(word[1]) if word and self.collective else None
        not_nccl = "not a kernel of NCCL's, which alone has these algorithms and protocols"
        said = {
            ClaimAbout.COLLECTIVE: (self.collective, _OWN_NAME if self.collective else self.why),
            ClaimAbout.OPERATOR: (self.op, "the only operator that it has" if self.op else self.why),
            ClaimAbout.DTYPE: (dtype, "the template's argument" if dtype else _NOT_SAID),
            ClaimAbout.ALGORITHM: (None, not_nccl),
            ClaimAbout.PROTOCOL: (None, not_nccl),
            ClaimAbout.METHOD: (self.method, self.why),
        }
        return tuple(Claim(about=about, value=value, reason=reason) for about, (value, reason) in said.items())


_ONE_SHOT = "each rank reads all ranks' buffers and reduces them whole"
_TWO_SHOT = "a ReduceScatter and an AllGather, as phases inside this one kernel"
_MULTIMEM = "the switch reduces or copies, through a multicast address"
_EXPERTS = "tokens sent to and from experts: like an all_to_all with counts of its own, and no collective of NCCL's"

FOREIGN_KERNELS = (
    ForeignKernel(
        library="vLLM or SGLang custom all-reduce",
        pattern="cross_device_reduce_1stage",
        collective="all_reduce",
        op="sum",
        method="one-shot",
        why=_ONE_SHOT,
    ),
    ForeignKernel(
        library="vLLM or SGLang custom all-reduce",
        pattern="cross_device_reduce_2stage",
        collective="all_reduce",
        op="sum",
        method="two-shot",
        why=_TWO_SHOT,
    ),
    ForeignKernel(
        library="torch symmetric memory",
        pattern="multimem_(?:one_shot_)?all_reduce_kernel",
        collective="all_reduce",
        op="sum",
        method="multimem",
        why=_MULTIMEM,
    ),
    ForeignKernel(
        library="torch symmetric memory",
        pattern="multimem_all_gather_kernel",
        collective="all_gather",
        method="multimem",
        why=_MULTIMEM,
    ),
    ForeignKernel(
        library="torch symmetric memory",
        pattern="multimem_one_shot_reduce_kernel",
        collective="reduce",
        op="sum",
        method="multimem",
        why=_MULTIMEM,
    ),
    ForeignKernel(
        library="torch symmetric memory",
        pattern="one_shot_all_reduce_kernel",
        collective="all_reduce",
        op="sum",
        method="one-shot",
        why=_ONE_SHOT,
    ),
    ForeignKernel(
        library="torch symmetric memory",
        pattern="two_shot_all_reduce_kernel",
        collective="all_reduce",
        op="sum",
        method="two-shot",
        why=_TWO_SHOT,
    ),
    ForeignKernel(
        library="TensorRT-LLM or FlashInfer custom all-reduce",
        pattern="(?:oneShotAllReduceKernel|one_shot_all_reduce|allreduce_fusion_kernel_oneshot)",
        collective="all_reduce",
        op="sum",
        method="one-shot",
        why=_ONE_SHOT,
    ),
    ForeignKernel(
        library="TensorRT-LLM or FlashInfer custom all-reduce",
        pattern="(?:twoShotAllReduceKernel|allreduce_fusion_kernel_twoshot)",
        collective="all_reduce",
        op="sum",
        method="two-shot",
        why=_TWO_SHOT,
    ),
    ForeignKernel(
        library="DeepEP",
        pattern=r"(?:deep_ep|dpsk(?:::|\d)ep)(?:::|\d+)(?:intranode|internode|low_latency)",
        why=_EXPERTS,
    ),
    ForeignKernel(library="MSCCL++", pattern="mscclpp"),
    ForeignKernel(
        library="MSCCL",
        pattern="mscclKernel_",
        why="it runs an algorithm that was written for it in a file, and the name does not say for which collective",
    ),
    ForeignKernel(library="NVSHMEM", pattern="nvshmem"),
    ForeignKernel(library="rocSHMEM", pattern="rocshmem"),
    ForeignKernel(library="Transformer Engine user buffers", pattern="userbuffers_"),
)

# One expression for all, because it is asked of every kernel of a trace. A digit may stand before: mangled names.
_ANY = re.compile(r"(?<![A-Za-z_])(?:" + "|".join(f"({kernel.pattern})" for kernel in FOREIGN_KERNELS) + ")")


def find(name: str) -> ForeignKernel | None:
    """Whose communication kernel `name` is; None where it is none that is known here."""
    found = _ANY.search(name)
    return FOREIGN_KERNELS[found.lastindex - 1] if found is not None and found.lastindex is not None else None
