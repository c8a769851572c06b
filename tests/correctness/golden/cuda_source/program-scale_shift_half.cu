#include <cuda_fp16.h>
struct __align__(16) half8 { half2 x, y, z, w; };
static __device__ __forceinline__ half8 load_half8(const half* p) {
  const uint4 bits = *(const uint4*)p;
  return *(const half8*)&bits;
}
static __device__ __forceinline__ void store_half8(half* p, const half8& value) {
  *(uint4*)p = *(const uint4*)&value;
}
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

extern "C" __global__ void __launch_bounds__(64, 1) scale_shift(
    const half* __restrict__ A,
    const half* __restrict__ Scale,
    const half* __restrict__ Shift,
    half* __restrict__ B) {
  if (!follow_previous_kernel()) return;
  const int bx = (int)blockIdx.x;
  const int tx = (int)threadIdx.x;
  const half8 A_v = load_half8(&A[bx * 512 + tx * 8]);
  const half2 Scale_s = __half2half2(Scale[bx]);
  const half2 Shift_s = __half2half2(Shift[bx]);
  store_half8(&B[bx * 512 + tx * 8], half8{
      __hmax2_nan(A_v.x * Scale_s + Shift_s, __half2half2(__float2half(0.0f))),
      __hmax2_nan(A_v.y * Scale_s + Shift_s, __half2half2(__float2half(0.0f))),
      __hmax2_nan(A_v.z * Scale_s + Shift_s, __half2half2(__float2half(0.0f))),
      __hmax2_nan(A_v.w * Scale_s + Shift_s, __half2half2(__float2half(0.0f)))});
}
