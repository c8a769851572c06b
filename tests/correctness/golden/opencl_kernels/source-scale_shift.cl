float4 max_float4(float4 a, float4 b) {
  return ((a > b) | (a != a)) ? a : b;
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void scale_shift(
    __global const float* restrict A,
    __global const float* restrict Scale,
    __global const float* restrict Shift,
    __global float* restrict B) {
  const int bx = (int)get_group_id(0);
  const int tx = (int)get_local_id(0);
  const float4 A_v = vload4(0, &A[bx * 256 + tx * 4]);
  const float4 Scale_s = (float4)(Scale[bx]);
  const float4 Shift_s = (float4)(Shift[bx]);
  vstore4(max_float4(A_v * Scale_s + Shift_s, (float4)(0.0f)), 0, &B[bx * 256 + tx * 4]);
}
