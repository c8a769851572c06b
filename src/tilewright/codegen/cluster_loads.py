"""The queue of tile loads in CUDA C++ where blocks of a cluster share boxes.

A box that all blocks of a cluster have is asked for by each of them in turn, and lands, with its
bytes, in the memory and on the mbarriers of all; each waits for all bytes of its own. A copy is
filled again when all blocks have done with theirs: warps arrive on an mbarrier of each block, and
who asks for boxes waits for its own.

Warps arrive in their own block last. So who has passed a barrier there knows that everybody has
arrived for it on the others too, but for what each warp does next, and no warp is as far ahead as
there are barriers (:mod:`.mbarriers`). No block ends while another one may still arrive in its
memory, nor is any box asked for before all blocks have made their barriers.

Nothing that threads wrote goes from block to block: an arrival says that reads have ended, which
those of tensor cores have when they are waited for, and those of threads at a fence of the proxy.
So none of it is ordered for the whole cluster (".release.cluster"), which takes a microsecond each
time, as a fence for the whole GPU does.
"""

from __future__ import annotations

_LOAD = """  __device__ __forceinline__ void {name}_to_all(
      void* to, const TensorMap* map, unsigned bytes, {params}) {{
    const unsigned barrier = this->place(this->issued);
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;"
        :: "r"(barrier), "r"(bytes) : "memory");
    if (this->issued % Blocks == rank)
      asm volatile("cp.async.bulk.tensor.{dimensions}d.shared::cluster.global.{mode}"
          ".mbarrier::complete_tx::bytes.multicast::cluster"
          " [%0], [%1, {{{places}}}], [%2], {offsets}%3;"
          :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(map), "r"(barrier),
             "h"((unsigned short)((1u << Blocks) - 1)), {values} : "memory");
  }}"""


def _load(dimensions: int) -> str:
    names = [f"c{k}" for k in range(dimensions)]
    return _LOAD.format(
        name="load", params=", ".join(f"int {name}" for name in names), dimensions=dimensions,
        mode="tile", places=", ".join(f"%{4 + k}" for k in range(dimensions)), offsets="",
        values=", ".join(f'"r"({name})' for name in reversed(names)),
    )  # fmt: skip


_LOAD_WINDOWS = _LOAD.format(
    name="load_windows", params="int n, int h, int w, int c, int r, int s", dimensions=4,
    mode="im2col", places="%4, %5, %6, %7", offsets="{%8, %9}, ",
    values='"r"(c), "r"(w), "r"(h), "r"(n), "h"((unsigned short)s), "h"((unsigned short)r)',
)  # fmt: skip

#: What stands behind the text of :mod:`.mbarriers`, and takes the place of its object.
TEXT = """
template <unsigned Slots, unsigned Warps, bool Whole, unsigned Blocks>
struct ClusterLoads : TileLoads<Slots, Warps * Blocks, Whole> {
  unsigned rank;
  __device__ __forceinline__ ClusterLoads(unsigned long long* barriers_, bool first_)
      : TileLoads<Slots, Warps * Blocks, Whole>(barriers_, first_) {
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    meet();
  }
  __device__ __forceinline__ static void meet() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\\n"
        "barrier.cluster.wait.aligned;" ::: "memory");
  }
  __device__ __forceinline__ void free() {
    const unsigned barrier = this->place(this->freed) + Slots * 8;
    __syncwarp();
    if (this->arriving) {
      #pragma unroll
      for (unsigned k = 1; k <= Blocks; ++k)
        asm volatile("{ .reg .b32 there;\\n"
            "mapa.shared::cluster.u32 there, %0, %1;\\n"
            "mbarrier.arrive.shared::cluster.b64 _, [there]; }"
            :: "r"(barrier), "r"((rank + k) % Blocks) : "memory");
    }
    if (this->leading) this->pass(barrier, this->freed / Slots & 1);
    ++this->freed;
  }
""" + "\n".join([*map(_load, range(1, 6)), _LOAD_WINDOWS]) + "\n};"  # fmt: skip
