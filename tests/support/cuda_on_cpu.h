// Just enough of CUDA C++ for a C++20 compiler to run the kernels of the tests on a CPU: the blocks
// of a grid one after the other, the threads of a block as threads.
#pragma once
#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))

struct dim3 {
  unsigned x, y, z;
};
static thread_local dim3 threadIdx, blockIdx;
static dim3 blockDim, gridDim;
static std::unique_ptr<std::barrier<>> block_barrier;
static std::vector<std::unique_ptr<std::barrier<>>> warp_barriers;
static uint64_t exchanged[1024];

static unsigned flat_thread() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
static void __syncthreads() { block_barrier->arrive_and_wait(); }
static void __syncwarp() { warp_barriers[flat_thread() / 32]->arrive_and_wait(); }

template <typename T>
static T exchange(T value, unsigned from) {
  const unsigned me = flat_thread();
  std::memcpy(&exchanged[me], &value, sizeof(T));
  __syncwarp();
  T found;
  std::memcpy(&found, &exchanged[me / 32 * 32 + from], sizeof(T));
  __syncwarp();
  return found;
}
template <typename T>
static T __shfl_xor_sync(unsigned, T value, int mask) {
  return exchange(value, (flat_thread() % 32) ^ mask);
}
template <typename T>
static T __shfl_down_sync(unsigned, T value, unsigned delta) {
  const unsigned lane = flat_thread() % 32;
  return exchange(value, lane + delta < 32 ? lane + delta : lane);
}
template <typename T>
static T __shfl_sync(unsigned, T value, int lane) {
  return exchange(value, lane);
}

#define VECTOR(T, name)                                                              \
  struct __align__(2 * sizeof(T)) name##2 { T x, y; };                                \
  struct __align__(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) name##4 { T x, y, z, w; }; \
  static name##2 make_##name##2(T x, T y) { return {x, y}; }                          \
  static name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
VECTOR(float, float)
VECTOR(double, double)
VECTOR(signed char, char)
VECTOR(unsigned char, uchar)
VECTOR(short, short)
VECTOR(unsigned short, ushort)
VECTOR(int, int)
VECTOR(unsigned int, uint)
VECTOR(long long, longlong)
VECTOR(unsigned long long, ulonglong)

static int min(int a, int b) { return a < b ? a : b; }
static int max(int a, int b) { return a > b ? a : b; }
static unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
static unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
static long long min(long long a, long long b) { return a < b ? a : b; }
static long long max(long long a, long long b) { return a > b ? a : b; }
static unsigned long long min(unsigned long long a, unsigned long long b) { return a < b ? a : b; }
static unsigned long long max(unsigned long long a, unsigned long long b) { return a > b ? a : b; }
static int __popc(unsigned x) { return __builtin_popcount(x); }
static int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static float __fmul_rd(float x, float y) {
  const double exact = (double)x * y;
  const float near = (float)exact;
  return near > exact ? std::nextafter(near, -INFINITY) : near;
}
static float __fmul_ru(float x, float y) { return -__fmul_rd(-x, y); }
static float __saturatef(float x) { return x > 0.0f ? std::min(x, 1.0f) : 0.0f; }
static bool isnan(float x) { return std::isnan(x); }
static float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static float __int_as_float(int bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}
static float __uint_as_float(unsigned bits) { return __int_as_float((int)bits); }
static int __float_as_int(float x) {
  int bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}
static unsigned __float_as_uint(float x) { return (unsigned)__float_as_int(x); }
static double __longlong_as_double(long long bits) {
  double x;
  std::memcpy(&x, &bits, 8);
  return x;
}
static long long __double_as_longlong(double x) {
  long long bits;
  std::memcpy(&bits, &x, 8);
  return bits;
}
static unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const uint64_t both = (uint64_t)y << 32 | x;
  unsigned found = 0;
  for (int k = 0; k < 4; ++k) {
    const unsigned byte = selector >> 4 * k & 7;
    found |= (unsigned)(both >> 8 * byte & 255) << 8 * k;
  }
  return found;
}
template <typename T, typename Function>
static unsigned halves(unsigned x, unsigned y, Function f) {
  const unsigned low = (uint16_t)f((T)x, (T)y), high = (uint16_t)f((T)(x >> 16), (T)(y >> 16));
  return high << 16 | low;
}
static auto largest = [](auto a, auto b) { return a < b ? b : a; };
static auto smallest = [](auto a, auto b) { return b < a ? b : a; };
static unsigned __vmaxs2(unsigned x, unsigned y) { return halves<int16_t>(x, y, largest); }
static unsigned __vmaxu2(unsigned x, unsigned y) { return halves<uint16_t>(x, y, largest); }
static unsigned __vmins2(unsigned x, unsigned y) { return halves<int16_t>(x, y, smallest); }
static unsigned __vminu2(unsigned x, unsigned y) { return halves<uint16_t>(x, y, smallest); }

// Numbers of 16 bits: a float rounded to nearest even.
static float round_to(float x, int mantissa, float smallest) {
  if (!std::isfinite(x) || x == 0) return x;
  int exponent;
  std::frexp(x, &exponent);
  const float unit = std::ldexp(1.0f, exponent - mantissa);
  return std::nearbyint(x / std::max(unit, smallest)) * std::max(unit, smallest);
}
struct half {
  uint16_t bits;
  half() = default;
  half(float x) {
    x = round_to(x, 11, 0x1p-24f);
    uint32_t b;
    std::memcpy(&b, &x, 4);
    const uint16_t sign = b >> 16 & 0x8000;
    const float size = std::fabs(x);
    if (std::isnan(x)) bits = 0x7fff;
    else if (size > 65504.0f) bits = sign | 0x7c00;
    else if (size < 0x1p-14f) bits = sign | (uint16_t)(size * 0x1p24f);
    else bits = sign | (uint16_t)((b & 0x7fffffff) - (112 << 23) >> 13);
  }
  operator float() const {
    const float sign = bits & 0x8000 ? -1.0f : 1.0f;
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    if (exponent == 31) return fraction ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * fraction * 0x1p-24f;
    return sign * std::ldexp(1024.0f + fraction, exponent - 25);
  }
};
struct __nv_bfloat16 {
  uint16_t bits;
  __nv_bfloat16() = default;
  __nv_bfloat16(float x) {
    uint32_t b;
    std::memcpy(&b, &x, 4);
    bits = std::isnan(x) ? 0x7fff : (b + 0x7fff + (b >> 16 & 1)) >> 16;
  }
  operator float() const {
    const uint32_t b = (uint32_t)bits << 16;
    float x;
    std::memcpy(&x, &b, 4);
    return x;
  }
};
#define SIXTEEN(T, T2, splat, join, to, from)                          \
  struct __align__(4) T2 { T x, y; };                                  \
  static T operator+(T a, T b) { return T((float)a + (float)b); }      \
  static T operator-(T a, T b) { return T((float)a - (float)b); }      \
  static T operator*(T a, T b) { return T((float)a * (float)b); }      \
  static T operator/(T a, T b) { return T((float)a / (float)b); }      \
  static T& operator+=(T& a, T b) { return a = a + b; }                \
  static T2 operator+(T2 a, T2 b) { return {a.x + b.x, a.y + b.y}; }   \
  static T2 operator-(T2 a, T2 b) { return {a.x - b.x, a.y - b.y}; }   \
  static T2 operator*(T2 a, T2 b) { return {a.x * b.x, a.y * b.y}; }   \
  static T2 operator/(T2 a, T2 b) { return {a.x / b.x, a.y / b.y}; }   \
  static T __hmax_nan(T a, T b) { return (float)a > (float)b || (float)a != (float)a ? a : b; } \
  static T __hmin_nan(T a, T b) { return (float)a < (float)b || (float)a != (float)a ? a : b; } \
  static T2 __hmax2_nan(T2 a, T2 b) { return {__hmax_nan(a.x, b.x), __hmax_nan(a.y, b.y)}; } \
  static T2 __hmin2_nan(T2 a, T2 b) { return {__hmin_nan(a.x, b.x), __hmin_nan(a.y, b.y)}; } \
  static T __habs(T a) { return T(fabsf(a)); }                         \
  static T operator-(T a) { return T(-(float)a); }                     \
  static T2 operator-(T2 a) { return {-a.x, -a.y}; }                   \
  static T2 __habs2(T2 a) { return {__habs(a.x), __habs(a.y)}; }       \
  static T2 splat(T a) { return {a, a}; }                              \
  static T2 join(T a, T b) { return {a, b}; }                          \
  static float to(T a) { return a; }                                   \
  static T from(float a) { return T(a); }
SIXTEEN(half, half2, __half2half2, __halves2half2, __half2float, __float2half)
SIXTEEN(__nv_bfloat16, __nv_bfloat162, __bfloat162bfloat162, __halves2bfloat162,
        __bfloat162float, __float2bfloat16)

typedef int cudaError_t;
typedef void* cudaStream_t;
enum { cudaSuccess = 0, cudaErrorMisalignedAddress = 716 };
enum { cudaFuncAttributeMaxDynamicSharedMemorySize };
static int cudaMallocAsync(void** p, size_t n, cudaStream_t) {
  *p = std::aligned_alloc(256, (n + 255) / 256 * 256);
  return cudaSuccess;
}
static int cudaFreeAsync(void* p, cudaStream_t) { return std::free(p), cudaSuccess; }
static int cudaGetLastError() { return cudaSuccess; }
template <typename F>
static int cudaFuncSetAttribute(F, int, int) { return cudaSuccess; }
extern "C" { __attribute__((aligned(16))) unsigned char shared_memory[1 << 18]; }

template <typename F, typename... Args>
static void launch(F kernel, dim3 grid, dim3 block, int, cudaStream_t, Args... args) {
  gridDim = grid, blockDim = block;
  const unsigned count = block.x * block.y * block.z;
  block_barrier = std::make_unique<std::barrier<>>(count);
  warp_barriers.clear();
  for (unsigned t = 0; t < count; t += 32)
    warp_barriers.push_back(std::make_unique<std::barrier<>>(std::min(32u, count - t)));
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < count; ++t)
    threads.emplace_back([=] {
      threadIdx = {t % block.x, t / block.x % block.y, t / block.x / block.y};
      for (unsigned z = 0; z < grid.z; ++z)
        for (unsigned y = 0; y < grid.y; ++y)
          for (unsigned x = 0; x < grid.x; ++x) {
            blockIdx = {x, y, z};
            kernel(args...);
            block_barrier->arrive_and_wait();
          }
    });
  for (auto& thread : threads) thread.join();
}
