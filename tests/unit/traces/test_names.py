"""Kernels that communicate are told from kernels that compute by their names."""

import pytest

from meshwright.traces.names import collective, communicates, payload_bytes

COMMUNICATE = {
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)": "all_reduce",
    "ncclAllReduceRingLLKernel_sum_f32(ncclColl)": "all_reduce",
    "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "all_gather",
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "reduce_scatter",
    "ncclSymkDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_bf16(ncclSymkDevWorkArgs4K)": "all_reduce",
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)": "send_recv",
    "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)": "communication",
    "rccl_main_kernel": "communication",
    "mscclKernel_Sum_float_Simple_false(ncclDevComm*, mscclAlgo*)": "communication",
    "oneccl_allreduce_large_ring": "all_reduce",
    "hcom_allReduce__123_0_1": "all_reduce",
    "hccl_all_gather": "all_gather",
    "void (anonymous namespace)::two_shot_all_reduce_kernel<c10::BFloat16, 16, 8>(c10::BFloat16*)": "all_reduce",
    "void one_shot_all_reduce_kernel<float, 8>(float*)": "all_reduce",
    "void multimem_all_gather_kernel<8>(int)": "all_gather",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)": "all_reduce",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<2>(int)": "all_reduce",
    "userbuffers_fp16_sum_inplace_gpu_rr_rs_oop": "communication",
    "void deep_ep::internode::dispatch<false, 8, true, 8>(int4*, float*, long*)": "all_to_all",
    "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768>(int4*, float*)": "all_to_all",
    "void dpsk::ep::internode::dispatch_ll<true, 7168>(void*)": "all_to_all",
    "void deep_ep::internode_ll::combine<7168, 9>(void*)": "all_to_all",
    "void deep_ep::intranode::notify_dispatch<8>(int const*)": "all_to_all",
    "mori::moe::EpDispatchIntraNodeKernel": "all_to_all",
    "nvshmemi_transfer_rma_nbi": "communication",
    "void aiter::reduce_scatter_cross_device_store<__hip_bfloat16, 8>(aiter::RankData*)": "reduce_scatter",
    "void aiter::allgather_lastdim<__hip_bfloat16, 8>(aiter::RankData*)": "all_gather",
    "void c10d::symmetric_memory::(anonymous namespace)::barrier_kernel(unsigned int**, int)": "barrier",
    "nvshmem_all_to_all_vdev_kernel": "all_to_all",
}


@pytest.mark.parametrize("name", COMMUNICATE)
def test_a_kernel_that_communicates_is_known(name):
    assert communicates(name)
    assert collective(name) == COMMUNICATE[name]


@pytest.mark.parametrize(
    "name",
    [
        "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NTT",
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(at::native::ReduceOp<float>)",
        "void at::native::_scatter_gather_elementwise_kernel<128, 8>(int)",
        "void flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128> >(Flash_fwd_params)",
        "void deep_ep::internode::get_dispatch_layout<256, 32, 8>(long const*)",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float>(float*)",
        "triton_red_fused__to_copy_mean_0",
        "triton_red_fused_all_reduce_native_layer_norm_0",
        "AllGatherMatmul",
        "void cub::DeviceReduceKernel<cub::Policy>(int)",
        "moe_align_block_size_kernel",
        "void cublasLt::splitKreduce_kernel<32, 16>(cublasLt::cublasSplitKParams<float>)",
        "void at::native::index_put_with_sort_kernel<float>(long*)",
        "accumulate_kernel",
        "void moe_permute_topK_kernel<__nv_bfloat16>(int)",
    ],
)
def test_a_kernel_that_computes_is_not_taken_for_one_that_communicates(name):
    assert not communicates(name)


@pytest.mark.parametrize(
    ("found", "dtype", "size"), [((10, 80), "BFloat16", 160), (("8", 0), "Float8_e4m3fn", 8), ((3, 3), "unheard", 0)]
)
def test_the_payload_is_the_larger_of_what_goes_in_and_out(found, dtype, size):
    assert payload_bytes(*found, dtype) == size
