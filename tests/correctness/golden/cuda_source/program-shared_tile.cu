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

extern "C" __global__ void __launch_bounds__(256, 1) transpose(
    const float* __restrict__ A,
    float* __restrict__ B) {
  if (!follow_previous_kernel()) return;
  const int bx = (int)blockIdx.x;
  const int by = (int)blockIdx.y;
  const int tx = (int)threadIdx.x;
  const int ty = (int)threadIdx.y;
  __shared__ __align__(16) float tile[1055];
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    tile[i * 264 + ty * 33 + tx] = A[by * 3072 + i * 768 + ty * 96 + bx * 32 + tx];
  }
  __syncthreads();
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    B[bx * 4096 + i * 1024 + ty * 128 + by * 32 + tx] = tile[tx * 33 + i * 8 + ty];
  }
}
