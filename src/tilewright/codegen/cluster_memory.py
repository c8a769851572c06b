"""Memory that blocks of a cluster keep for each other, in CUDA C++.

What another block keeps is where this one keeps the same, in an address that the hardware makes of
both numbers (PTX ISA, "mapa"). Blocks meet before that is read, and before one of them ends.

What the threads of a block wrote is ordered for the block, and what they wrote to its shared memory
for the cluster ("fence.sync_restrict"): that is all that another block reads. An arrival that
orders everything (".release") is a fence for the whole GPU, which waits for memory.
"""

from __future__ import annotations

TEXT = """template <class T>
static __device__ __forceinline__ const T* of_block(const T* own, int block) {
  const T* there;
  asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(own), "r"(block));
  return there;
}
static __device__ __forceinline__ void meet_cluster() {
  asm volatile("fence.acq_rel.cta;\\n"
      "fence.release.sync_restrict::shared::cta.cluster;\\n"
      "barrier.cluster.arrive.relaxed.aligned;\\n"
      "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}"""
