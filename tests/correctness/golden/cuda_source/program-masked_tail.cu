static __device__ __forceinline__ bool follow_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  unsigned blocks;
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;\n  mov.u32 %0, %%nctaid.x;" : "=r"(blocks) :: "memory");
  return blocks != 0;
#else
  return true;
#endif
}

extern "C" __global__ void __launch_bounds__(64, 1) tail(
    const float* __restrict__ A,
    float* __restrict__ B) {
  if (!follow_previous_kernel()) return;
  const int tx = (int)threadIdx.x;
  if (tx * 4 + 3 < 250) {
    const float4 A_v = *(const float4*)&A[tx * 4];
    *(float4*)&B[tx * 4] = make_float4(A_v.x + 1.0f, A_v.y + 1.0f, A_v.z + 1.0f, A_v.w + 1.0f);
  } else {
    if (tx * 4 < 250) {
      B[tx * 4] = A[tx * 4] + 1.0f;
    }
    if (tx * 4 + 1 < 250) {
      B[tx * 4 + 1] = A[tx * 4 + 1] + 1.0f;
    }
    if (tx * 4 + 2 < 250) {
      B[tx * 4 + 2] = A[tx * 4 + 2] + 1.0f;
    }
    if (tx * 4 + 3 < 250) {
      B[tx * 4 + 3] = A[tx * 4 + 3] + 1.0f;
    }
  }
}
