__kernel __attribute__((reqd_work_group_size(32, 8, 1))) void transpose(
    __global const float* restrict A,
    __global float* restrict B) {
  const int bx = (int)get_group_id(0);
  const int by = (int)get_group_id(1);
  const int tx = (int)get_local_id(0);
  const int ty = (int)get_local_id(1);
  __local float tile[1055] __attribute__((aligned(64)));
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    tile[i * 264 + ty * 33 + tx] = A[by * 3072 + i * 768 + ty * 96 + bx * 32 + tx];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    B[bx * 4096 + i * 1024 + ty * 128 + by * 32 + tx] = tile[tx * 33 + i * 8 + ty];
  }
}
