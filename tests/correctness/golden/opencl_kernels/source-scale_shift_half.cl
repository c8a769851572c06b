float max_float(float a, float b) {
  return ((a > b) | (a != a)) ? a : b;
}

float round_half(float x) {
  ushort bits;
  vstore_half_rte(x, 0, (half*)&bits);
  return vload_half(0, (const half*)&bits);
}

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void scale_shift(
    __global const half* restrict A,
    __global const half* restrict Scale,
    __global const half* restrict Shift,
    __global half* restrict B) {
  const int bx = (int)get_group_id(0);
  const int tx = (int)get_local_id(0);
  const float8 A_v = vload_half8(0, A + (bx * 512 + tx * 8));
  const float Scale_s = vload_half(bx, Scale);
  const float Shift_s = vload_half(bx, Shift);
  vstore_half8((float8)(
      max_float(round_half(round_half(A_v.s0 * Scale_s) + Shift_s), 0.0f),
      max_float(round_half(round_half(A_v.s1 * Scale_s) + Shift_s), 0.0f),
      max_float(round_half(round_half(A_v.s2 * Scale_s) + Shift_s), 0.0f),
      max_float(round_half(round_half(A_v.s3 * Scale_s) + Shift_s), 0.0f),
      max_float(round_half(round_half(A_v.s4 * Scale_s) + Shift_s), 0.0f),
      max_float(round_half(round_half(A_v.s5 * Scale_s) + Shift_s), 0.0f),
      max_float(round_half(round_half(A_v.s6 * Scale_s) + Shift_s), 0.0f),
      max_float(round_half(round_half(A_v.s7 * Scale_s) + Shift_s), 0.0f)), 0, B + (bx * 512 + tx * 8));
}
