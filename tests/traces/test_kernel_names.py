"""Names are read for what they prove, and for nothing that they only seem to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rsag.records.kernels import ClaimAbout
from rsag.traces.kernel_names import KernelName, Naming, decode, is_communication

C = ClaimAbout


def claimed(name: str) -> dict[str, str]:
    decoded = decode(name)
    assert decoded is not None, name
    return {claim.about.value: claim.value for claim in decoded.claims if claim.value is not None}


def known(name: str) -> KernelName:
    decoded = decode(name)
    assert decoded is not None, name
    return decoded


@pytest.mark.parametrize(
    ("name", "naming", "expected"),
    [
        (
            "ncclAllReduceRingLLKernel_sum_f32(ncclColl)",
            Naming.NCCL_2_7,
            {"collective": "all_reduce", "dtype": "float32", "algorithm": "RING"},
        ),
        (
            "ncclAllReduceTreeLL128Kernel_sum_i64(ncclColl)",
            Naming.NCCL_2_7,
            {"collective": "all_reduce", "dtype": "int64", "algorithm": "TREE"},
        ),
        (
            "ncclAllGatherRingLLKernel_copy_i8(ncclColl)",
            Naming.NCCL_2_7,
            {"collective": "all_gather", "algorithm": "RING"},
        ),
        ("ncclSendRecvKernel_copy_i8(ncclColl)", Naming.NCCL_2_7, {}),
        (
            "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
            Naming.NCCL_2_18,
            {"collective": "all_reduce", "dtype": "float32", "algorithm": "RING"},
        ),
        (
            "ncclKernel_Reduce_NVLS_TREE_LL_Sum___nv_bfloat16(ncclDevComm*, unsigned long, ncclWork*)",
            Naming.NCCL_2_18,
            {"collective": "reduce", "dtype": "bfloat16", "algorithm": "NVLS_TREE"},
        ),
        (
            "ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
            Naming.NCCL_2_18,
            {"collective": "broadcast", "algorithm": "RING"},
        ),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", Naming.NCCL_2_18, {}),
        (
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)",
            Naming.NCCL,
            {"collective": "all_reduce", "dtype": "float32"},
        ),
        (
            "ncclDevKernel_AllReduce_Sum_u64_TREE_LL(ncclDevKernelArgsStorage<4096ul>)",
            Naming.NCCL,
            {"collective": "all_reduce", "dtype": "int64 or uint64", "algorithm": "TREE"},
        ),
        (
            "ncclDevKernel_ReduceScatter_Sum_u8_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
            Naming.NCCL,
            {"collective": "reduce_scatter", "dtype": "int8 or uint8 or bool"},
        ),
        (
            "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            Naming.NCCL,
            {"collective": "all_gather"},
        ),
        ("ncclDevKernel_AllGatherV_RING_LL(x)", Naming.NCCL, {"collective": "all_gather_v"}),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)", Naming.NCCL, {}),
        ("nccldevkernel_allreduce", Naming.NCCL, {"collective": "all_reduce"}),
        ("ncclDevKernel_Generic", Naming.GENERIC, {}),
        ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", Naming.GENERIC, {}),
        ("ncclDevKernelDebug_Generic(ncclDevComm*, channelMasks, ncclWork*)", Naming.GENERIC, {}),
        (
            "ncclSymDevKernel_AllReduce_AGxLL_R_sum_f16(ncclSymDevArgs)",
            Naming.SYMMETRIC,
            {"collective": "all_reduce", "operator": "sum", "dtype": "float16", "method": "AGxLL_R"},
        ),
        (
            "ncclSymkDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_bf16(ncclSymkDevWorkArgs4K)",
            Naming.SYMMETRIC,
            {"collective": "all_reduce", "operator": "sum", "dtype": "bfloat16", "method": "RSxLDMC_AGxSTMC"},
        ),
        (
            "ncclSymkDevKernel_ReduceScatter_RailA2A_LsaLD_avg_f8e5m2",
            Naming.SYMMETRIC,
            {
                "collective": "reduce_scatter",
                "operator": "avg",
                "dtype": "float8_e5m2",
                "method": "RailA2A_LsaLD",
            },
        ),
        ("ncclSymkDevKernel_AllGather_ST", Naming.SYMMETRIC, {"collective": "all_gather", "method": "ST"}),
        (
            "void oneRankReduce<FuncPreMulSum<__nv_bfloat16> >(void*, void*, unsigned long, unsigned long, bool)",
            Naming.ONE_RANK,
            {"operator": "premul_sum", "dtype": "bfloat16"},
        ),
        (
            "void oneRankReduce<FuncPreMulSum<unsigned long> >(void*, void*, unsigned long, unsigned long, bool)",
            Naming.ONE_RANK,
            {"operator": "premul_sum", "dtype": "int64 or uint64"},
        ),
        ("_Z13oneRankReduceI13FuncPreMulSumIfEEvPvS2_mmb", Naming.ONE_RANK, {"operator": "premul_sum"}),
        ("ncclKernelOfTomorrow(int)", Naming.UNKNOWN, {}),
        (
            "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*)",
            Naming.FOREIGN,
            {"collective": "all_reduce", "operator": "sum", "dtype": "bfloat16", "method": "two-shot"},
        ),
        (
            "_ZN4vllm26cross_device_reduce_1stageIfLi2EEEvPNS_8RankDataE",
            Naming.FOREIGN,
            {"collective": "all_reduce", "operator": "sum", "method": "one-shot"},
        ),
        (
            "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long)",
            Naming.FOREIGN,
            {"collective": "all_reduce", "operator": "sum", "dtype": "bfloat16", "method": "multimem"},
        ),
        ("multimem_all_gather_kernel<16>", Naming.FOREIGN, {"collective": "all_gather", "method": "multimem"}),
        ("dpsk::ep::internode::combine", Naming.FOREIGN, {}),
        ("void deep_ep::intranode::notify_dispatch<8>(int const*)", Naming.FOREIGN, {}),
        ("mscclKernel_Sum_half_LL_false(ncclDevComm*, mscclAlgo*, mscclWork*)", Naming.FOREIGN, {}),
        ("void mscclpp::allreduceAllPairs<float>()", Naming.FOREIGN, {}),
        ("nvshmemi_transfer_rma_nbi", Naming.FOREIGN, {}),
    ],
)
def test_a_name_claims_what_it_proves_and_no_more(name: str, naming: Naming, expected: dict[str, str]) -> None:
    assert (naming, expected) == (known(name).naming, claimed(name))


@pytest.mark.parametrize(
    "name",
    [
        "my_nccl_like_gemm",
        "nccl:all_reduce",
        ".../pynccl_allocator.py(48)",
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)",
        "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)",
        "reduce_scatter_of_my_own",
        "",
    ],
)
def test_a_kernel_that_only_sounds_like_communication_is_none(name: str) -> None:
    assert (False, None) == (is_communication(name), decode(name))


@pytest.mark.parametrize(
    "plain", ["ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", "ncclSymkDevKernel_AllReduce_RSxLD_AGxST_sum_f32"]
)
def test_mangled_bare_and_with_parameters_a_name_claims_the_same(plain: str) -> None:
    mangled = f"_Z{len(plain)}{plain}24ncclDevKernelArgsStorageILm4096EE"
    assert known(plain) == known(mangled) == known(f"{plain}(ncclDevKernelArgs4K const)")


def test_ring_ll_in_a_name_is_evidence_of_neither_and_the_reason_says_so() -> None:
    name = known("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
    ring, ll = name.claim(C.ALGORITHM), name.claim(C.PROTOCOL)
    assert (None, None) == (ring.value, ll.value)
    assert "NVLS" in ring.reason
    assert "SIMPLE" in ll.reason


def test_sum_in_a_name_is_no_evidence_of_the_operator() -> None:
    claim = known("ncclDevKernel_AllReduce_Sum_u64_RING_LL").claim(C.OPERATOR)
    assert claim.value is None
    assert "MAX" in claim.reason


def test_every_name_that_nccl_generates_is_decoded(public: Callable[[str], Path]) -> None:
    lists = sorted(public("nccl_kernel_names").glob("*.txt"))
    names = [line for path in lists for line in path.read_text().splitlines() if line.strip()]
    assert 672 == len(names)
    unknown = [name for name in names if (decoded := decode(name)) is None or decoded.naming is Naming.UNKNOWN]
    assert [] == unknown


def test_of_all_names_that_nccl_generates_none_claims_a_protocol(public: Callable[[str], Path]) -> None:
    lists = sorted(public("nccl_kernel_names").glob("*.txt"))
    names = [line for path in lists for line in path.read_text().splitlines() if line.strip()]
    assert [] == [name for name in names if "protocol" in claimed(name)]


def test_of_all_names_since_2_19_only_send_and_receive_claim_no_collective(public: Callable[[str], Path]) -> None:
    lists = [path for path in public("nccl_kernel_names").glob("*.txt") if "v2.18" not in path.name]
    names = [line for path in lists for line in path.read_text().splitlines() if line.strip()]
    assert {"ncclDevKernel_SendRecv"} == {name.split("(")[0] for name in names if "collective" not in claimed(name)}


@given(st.text() | st.from_regex(r"(?i)(_Z\d*)?nccl(sym|symk|dev)?kernel_\w*(\(.*)?"))
def test_any_text_is_decoded_without_harm_and_one_claim_about_each_thing(name: str) -> None:
    decoded = decode(name)
    assert is_communication(name) == (decoded is not None)
    if decoded is not None:
        assert tuple(ClaimAbout) == tuple(claim.about for claim in decoded.claims)
        assert all(claim.reason for claim in decoded.claims)
