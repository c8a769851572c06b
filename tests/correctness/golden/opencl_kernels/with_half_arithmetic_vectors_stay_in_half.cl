#pragma OPENCL EXTENSION cl_khr_fp16 : enable

__kernel __attribute__((reqd_work_group_size(32, 1, 1))) void half_fma(
    __global const half* restrict A,
    __global const half* restrict B,
    __global half* restrict C) {
  const int tx = (int)get_local_id(0);
  half acc[8] __attribute__((aligned(16)));
  *(__private half8*)acc = (half8)((half)0.0f);
  for (int k = 0; k < 16; ++k) {
    const half8 acc_v = *(__private const half8*)acc;
    const half8 A_v = vload8(0, &A[k * 256 + tx * 8]);
    const half8 B_v = vload8(0, &B[k * 256 + tx * 8]);
    *(__private half8*)acc = acc_v + A_v * B_v;
  }
  const half8 acc_v = *(__private const half8*)acc;
  vstore8(acc_v, 0, &C[tx * 8]);
}
