"""Memory that blocks of a cluster keep for each other, in CUDA C++.

What another block keeps is where this one keeps the same, in an address that the hardware makes of
both numbers (PTX ISA, "mapa"). Blocks meet before that is read, with everything that they have
written, and before one of them ends.
"""

from __future__ import annotations

TEXT = """template <class T>
static __device__ __forceinline__ const T* of_block(const T* own, int block) {
  const T* there;
  asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(own), "r"(block));
  return there;
}
static __device__ __forceinline__ void meet_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\\n"
      "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}"""
