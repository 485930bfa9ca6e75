"""What the name of a kernel says, and what it only seems to say.

NCCL compiles a few entry points and lets them jump to whatever was chosen, so that most of a name is the entry
point's and not the call's: `ncclDevKernel_AllReduce_Sum_u64_RING_LL` runs MAX of int64 by NVLS as well. Read from
NVIDIA/nccl src/device/generate.py and enqueue.cc, 2.7 to 2.30, and from ROCm/rccl.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from enum import Enum

from rsag.records.kernels import Claim, ClaimAbout
from rsag.traces import foreign_kernels

_LONGEST = 4096  # characters of a name that are looked at: names come from files that anyone may have written


class Naming(str, Enum):
    """Who named the kernel."""

    NCCL_2_7 = "NCCL up to 2.7"
    NCCL_2_18 = "NCCL 2.8 to 2.18"
    NCCL = "NCCL 2.19 and later"
    SYMMETRIC = "NCCL symmetric kernels, 2.27 and later"
    GENERIC = "one entry point for all: RCCL, or a reduced build of NCCL"
    ONE_RANK = "NCCL in a group of one rank"
    UNKNOWN = "NCCL in a naming unknown here"
    FOREIGN = "not NCCL"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelName:
    """A kernel's name, decoded: one claim about each of ClaimAbout's, in its order."""

    naming: Naming
    library: str
    claims: tuple[Claim, ...]

    def claim(self, about: ClaimAbout) -> Claim:
        return next(claim for claim in self.claims if claim.about is about)


def is_communication(name: str) -> bool:
    """Whether a kernel of this name, mangled or not, moves data between devices for a collective or its like."""
    return _is_communication(name[:_LONGEST])


def decode(name: str) -> KernelName | None:
    """What may be claimed from a kernel's name, and what not; None for a kernel that does not communicate."""
    return _decode(name[:_LONGEST])


@functools.lru_cache(maxsize=4096)
def _is_communication(name: str) -> bool:
    return _NCCL.match(name) is not None or foreign_kernels.find(name) is not None


@functools.lru_cache(maxsize=1024)
def _decode(name: str) -> KernelName | None:
    if _NCCL.match(name) is None:
        foreign = foreign_kernels.find(name)
        if foreign is None:
            return None
        return KernelName(naming=Naming.FOREIGN, library=foreign.library, claims=foreign.claims(name))
    for read in (_one_rank, _symmetric, _dev_kernel, _kernel_2_18, _kernel_2_7):
        decoded = read(name)
        if decoded is not None:
            return decoded
    return _nccl(Naming.UNKNOWN)


# -- names ---------------------------------------------------------------------------------------------------------

# NCCL's own, at the very start: a path or another kernel's name may well contain "nccl" (or "my_nccl_like_gemm").
_NCCL = re.compile(r"(?:void\s+)?(?:_Z\d+)?(?:nccl[a-z_]|oneRankReduce)", re.IGNORECASE)
_MANGLED = re.compile(r"_Z(\d{1,4})")

_FUNCTIONS = {
    "allreduce": "all_reduce",
    "reducescatter": "reduce_scatter",
    "allgather": "all_gather",
    "allgatherv": "all_gather_v",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "alltoall": "all_to_all",
    "alltoallpivot": "all_to_all",
    "gather": "gather",
    "scatter": "scatter",
}
_REDUCTIONS = ("all_reduce", "reduce_scatter", "reduce")

_FLOATS = {
    "half": "float16",
    "f16": "float16",
    "float": "float32",
    "f32": "float32",
    "double": "float64",
    "f64": "float64",
    "bf16": "bfloat16",
    "__nv_bfloat16": "bfloat16",
    "hip_bfloat16": "bfloat16",
    "rccl_bfloat16": "bfloat16",
    "f8e4m3": "float8_e4m3",
    "f8e5m2": "float8_e5m2",
}
_C_TYPES = {
    "__half": "half",
    "signed char": "i8",
    "unsigned char": "u8",
    "int": "i32",
    "unsigned int": "u32",
    "long": "i64",
    "unsigned long": "u64",
    "__nv_fp8_e4m3": "f8e4m3",
    "__nv_fp8_e5m2": "f8e5m2",
}
_INTEGERS = re.compile(r"(u?)(?:int(8|16|32|64)_t|i(8|16|32|64))|u(8|16|32|64)")


def _identifier(name: str) -> str:
    """The function's bare name: no return type, no parameter list, demangled as far as that."""
    name = name.removeprefix("void ")
    mangled = _MANGLED.match(name)
    if mangled is not None:
        return name[mangled.end() : mangled.end() + int(mangled[1])]
    return re.split(r"[^\w]", name, maxsplit=1)[0]


def _float_or_integer(word: str, *, signs: bool) -> str | None:
    """The dtypes that a type's word stands for; `signs` where signed and unsigned have words of their own."""
    if word in _FLOATS:
        return _FLOATS[word]
    found = _INTEGERS.fullmatch(word)
    if found is None:
        return None
    width = found[2] or found[3] or found[4]
    unsigned = bool(found[1] or found[4])
    names = [f"uint{width}" if unsigned else f"int{width}"] if signs else [f"int{width}", f"uint{width}"]
    if width == "8" and (unsigned or not signs):
        names.append("bool")
    return " or ".join(names)


# -- reasons -------------------------------------------------------------------------------------------------------

_OF_ONE = "the entry point is this collective's own; a group of several calls is named for one of them"
_SEND_RECV = (
    "SendRecv is the entry point of send and recv and of all that is made of them (all_to_all, gather, scatter), and "
    "some builds run every collective in it; the caller's record tells which"
)
_GENERIC = "one entry point runs every collective in this build; the caller's record tells which"
_UNKNOWN = "a naming that is not known here"
_NO_LOG = "the library's own log tells (NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=TUNING)"
_ALWAYS_SUM = "the name says Sum whatever the operator: MAX, MIN, PROD and AVG run in the entry point of Sum"
_DOES_NOT_REDUCE = "this collective has no reduction operator"
_ALWAYS_LL = f"the name ends in LL whatever the protocol: LL128 and SIMPLE run in the entry point of LL; {_NO_LOG}"
_SIGNED_AS_UNSIGNED = "width and class are sure; signed integers run in the entry point of unsigned ones"
_NO_DTYPE = "bytes are moved as they are, and the name has no dtype of the call"
_RING_IS_MANY = (
    f"RING is the entry point of ring, NVLS, NVLS_TREE, COLLNET and PAT alike, in NCCL 2.19 and later; {_NO_LOG}"
)
_TREE = "only the tree runs in an entry point named TREE"
_SYMMETRIC_METHOD = "a symmetric kernel is compiled for one method"


def _nccl(naming: Naming, why: str = _UNKNOWN, **said: tuple[str | None, str]) -> KernelName:
    """The claims that are said, as (value, reason); what is not said is not claimable, because of `why`."""
    claims = tuple(
        Claim(about=about, value=value, reason=reason)
        for about in ClaimAbout
        for value, reason in [said.get(about.value, (None, why))]
    )
    return KernelName(naming=naming, library="NCCL", claims=claims)


_NO_METHOD = (None, "only symmetric kernels are named for a method")


# -- generations ---------------------------------------------------------------------------------------------------


def _one_rank(name: str) -> KernelName | None:
    if "onerankreduce" not in name[:32].lower():
        return None
    template = re.search(r"FuncPreMulSum<([\w ]+)>", name)
    word = _C_TYPES.get(template[1], template[1]) if template else ""
    dtype = _float_or_integer(word, signs=False)
    return _nccl(
        Naming.ONE_RANK,
        why="a group of one rank has nothing to exchange: only its own buffer is scaled",
        operator=("premul_sum", "a sum scaled beforehand, which AVG is too; of one rank other operators are copies"),
        dtype=(
            dtype,
            "the template's argument" if dtype else "the name as given hides the template's argument",
        ),
        method=_NO_METHOD,
    )


_SYMMETRIC_NAME = re.compile(
    r"ncclsymk?devkernel_(?P<function>[a-z]+)_(?P<method>\w+?)(?:_(?P<op>sum|avg|prod|min|max)_(?P<type>\w+))?",
    re.IGNORECASE,
)


def _symmetric(name: str) -> KernelName | None:
    found = _SYMMETRIC_NAME.fullmatch(_identifier(name))
    if found is None:
        return None
    collective = _FUNCTIONS.get(found["function"].lower())
    dtype = _float_or_integer((found["type"] or "").lower(), signs=True)
    exact = "a symmetric kernel is compiled for one collective, operator and dtype"
    no_algorithm = "symmetric kernels use none of NCCL's algorithms and protocols; the method says how data move"
    phases = "; RS and AG in it are phases inside this one kernel" if "x" in found["method"] else ""
    return _nccl(
        Naming.SYMMETRIC,
        collective=(collective, exact if collective else _UNKNOWN),
        operator=(found["op"].lower(), exact) if found["op"] else (None, _DOES_NOT_REDUCE),
        dtype=(dtype, exact) if dtype else (None, _NO_DTYPE),
        algorithm=(None, no_algorithm),
        protocol=(None, no_algorithm),
        method=(found["method"], _SYMMETRIC_METHOD + phases),
    )


_DEV_KERNEL_NAME = re.compile(r"nccldevkernel(?:debug)?_(?P<function>[a-z]+)(?P<rest>\w*)", re.IGNORECASE)
_DEV_KERNEL_TYPE = re.compile(r"_sum_([a-z0-9]+)")


def _dev_kernel(name: str) -> KernelName | None:
    found = _DEV_KERNEL_NAME.fullmatch(_identifier(name))
    if found is None:
        return None
    function = found["function"].lower()
    collective = _FUNCTIONS.get(function)
    if collective is None:
        why = {"sendrecv": _SEND_RECV, "generic": _GENERIC}.get(function, _UNKNOWN)
        return _nccl(Naming.NCCL if function == "sendrecv" else Naming.GENERIC, why, method=_NO_METHOD)
    reduces = collective in _REDUCTIONS
    rest = found["rest"].lower()
    type_ = _DEV_KERNEL_TYPE.match(rest)
    dtype = _float_or_integer(type_[1], signs=False) if type_ else None
    no_dtype = (None, "the name as given has no dtype") if reduces else (None, _NO_DTYPE)
    return _nccl(
        Naming.NCCL,
        collective=(collective, _OF_ONE),
        operator=(None, _ALWAYS_SUM if reduces else _DOES_NOT_REDUCE),
        dtype=(dtype, _SIGNED_AS_UNSIGNED) if dtype else no_dtype,
        algorithm=("TREE", _TREE) if rest.endswith("_tree_ll") else (None, _RING_IS_MANY),
        protocol=(None, _ALWAYS_LL),
        method=_NO_METHOD,
    )


_KERNEL_2_18_NAME = re.compile(
    r"ncclkernel_(?P<function>[a-z]+)_(?P<algorithm>[a-z]+(?:_[a-z]+)??)_(?:ll128|ll|simple)_[a-z]+_(?P<type>\w+)",
    re.IGNORECASE,
)
_ALGORITHMS = ("TREE", "RING", "COLLNET", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE")


def _kernel_2_18(name: str) -> KernelName | None:
    found = _KERNEL_2_18_NAME.fullmatch(_identifier(name))
    if found is None:
        return None
    return _specialised(Naming.NCCL_2_18, found["function"], found["algorithm"].upper(), found["type"].lower())


_KERNEL_2_7_NAME = re.compile(
    r"nccl(?P<function>AllReduce|ReduceScatter|AllGather|Broadcast|Reduce|SendRecv)"
    r"(?P<algorithm>Ring|Tree|CollNet)?(?:LL128|LL)?Kernel_[a-z]+_(?P<type>\w+)",
    re.IGNORECASE,
)


def _kernel_2_7(name: str) -> KernelName | None:
    found = _KERNEL_2_7_NAME.fullmatch(_identifier(name))
    if found is None:
        return None
    return _specialised(Naming.NCCL_2_7, found["function"], (found["algorithm"] or "").upper(), found["type"].lower())


def _specialised(naming: Naming, function: str, algorithm: str, type_: str) -> KernelName:
    """Up to 2.18 collective, algorithm and dtype had entry points of their own; operator and protocol had none."""
    collective = _FUNCTIONS.get(function.lower())
    if collective is None:
        why = _SEND_RECV if function.lower() == "sendrecv" else _UNKNOWN
        return _nccl(naming, why, method=_NO_METHOD)
    reduces = collective in _REDUCTIONS
    dtype = _float_or_integer(type_, signs=True) if reduces else None
    known = algorithm in _ALGORITHMS
    return _nccl(
        naming,
        collective=(collective, _OF_ONE),
        operator=(None, _ALWAYS_SUM if reduces else _DOES_NOT_REDUCE),
        dtype=(dtype, "each dtype has its entry point, up to NCCL 2.18") if dtype else (None, _NO_DTYPE),
        algorithm=(algorithm, "each algorithm has its entry point, up to NCCL 2.18") if known else (None, _NO_LOG),
        protocol=(None, _ALWAYS_LL),
        method=_NO_METHOD,
    )
