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

extern "C" __global__ void __launch_bounds__(196, 1) depthwise(
    const float* __restrict__ Input,
    const float* __restrict__ Filter,
    float* __restrict__ Output) {
  if (!follow_previous_kernel()) return;
  const int blockIdx_x = (int)blockIdx.x;
  const int ty = (int)threadIdx.y;
  const int tx = (int)threadIdx.x;
  float acc[1];
  // DepthwiseConv2d
  acc[0] = 0.0f;
  #pragma unroll
  for (int di = 0; di < 3; ++di) {
    #pragma unroll
    for (int dj = 0; dj < 3; ++dj) {
      const int cse_v0 = ty + di - 1;
      const int cse_v1 = tx + dj - 1;
      acc[0] += (cse_v0 >= 0 && cse_v0 < 14 && cse_v1 >= 0 && cse_v1 < 14 ? Input[blockIdx_x * 196 + ty * 14 + di * 14 + tx + dj - 15] : 0.0f) * Filter[blockIdx_x * 9 + di * 3 + dj];
    }
  }
  Output[blockIdx_x * 196 + ty * 14 + tx] = acc[0];
}
