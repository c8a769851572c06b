// double_all: CUDA kernels and the function that launches them.
// nvcc -O3 -std=c++17 -arch=sm_90a -c double_all.cu
#include <cuda_runtime.h>
#include <stdint.h>

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

extern "C" __global__ void __launch_bounds__(64) double_all_kernel(
    const float* __restrict__ A,
    float* __restrict__ B,
    int n) {
  if (!follow_previous_kernel()) return;
  const int bx = (int)blockIdx.x;
  const int tx = (int)threadIdx.x;
  const int cse_v0 = bx * 64 + tx;
  if (cse_v0 < n * 40) {
    B[cse_v0] = A[cse_v0] * 2.0f;
  }
}

extern "C" cudaError_t double_all(
    const float* A,
    float* B,
    int32_t n,
    cudaStream_t stream) {
  if ((n * 5 + 7) / 8 > 0) {
    double_all_kernel<<<dim3((n * 5 + 7) / 8, 1, 1), dim3(64, 1, 1), 0, stream>>>(
        (const float*)A,
        (float*)B,
        n);
  }
  return cudaGetLastError();
}

/* A: float32[n, 40], read
   B: float32[n, 40], written
   Arrays lie in the device's memory, dense, row by row. The launch does not wait; it keeps
   nothing between calls, so that streams and threads may call it at once. */
#ifndef DOUBLE_ALL_H
#define DOUBLE_ALL_H
#include <cuda_runtime.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C"
#endif
cudaError_t double_all(
    const float* A,
    float* B,
    int32_t n,
    cudaStream_t stream);
#endif
