"""The queues of tile loads in CUDA C++: of each, mbarriers in shared memory, used in turn.

The loads of a group complete on one mbarrier, with the number of their bytes. Every thread counts
the groups that were committed and those that it has awaited, which tells the barrier and its phase:
so parities are right however loops are nested. The thread that asks for boxes arrives where a group
is committed, all threads wait.

Where copies are freed without a barrier of the block, each warp arrives, on further mbarriers used
in turn, when it has done with one; only the thread that asks for boxes waits for all of them, and
so none commits a group more ahead of the slowest warp than a barrier of the block would let it.
Its whole warp waits with it: where threads of one warp may come to differ, the compiler has every
product of a warpgroup wait for the one before. So waiting is decided by a vote, too, of the threads
that a warp has: the last one of a block may not be whole.

A kernel may ask for boxes of several groups before the first is committed
(:mod:`.early_loads`): their mbarriers wait for the arrival that commits them.

Where a producer copies boxes (:mod:`.producers`), all threads of that warp wait for copies that are
free, the first one asks for boxes, and nobody else waits for copies. It waits for no box itself:
a copy, and the mbarrier of its group, are free when the others have waited for it. Late boxes are
freed on the mbarriers of the others: of these there are as many as both queues need.

A barrier may be used again when all threads have waited for its group before: there are as many as
groups that may be under way, or of which some thread may not have seen the end, at once.
"""

from __future__ import annotations

from tilewright.ir.errors import TargetError
from tilewright.ir.func import Func
from tilewright.ir.stmt import Allocate, For, If, Instr, Let, Queue, Remark, Seq, Stmt, Sync
from tilewright.ir.visit import statements
from tilewright.lower.analysis.clusters import cluster_of
from tilewright.lower.async_.split_barriers import WARP, block_threads
from tilewright.target.queues import LATE_TILES, TILES

#: The queues, whose names the objects in a kernel have that keep them; copies are freed for the
#: first alone.
NAMES = (TILES, LATE_TILES)
#: The queue of boxes that go the other way, which has no such object.
STORES = "tma_store"
#: More groups than this at once are taken for groups that nobody waits for.
_MOST = 64


def queues(func: Func) -> tuple[str, ...]:
    """The queues of ``func`` whose instructions load tiles."""
    used = {s.instruction.queue for s in statements(func.body) if isinstance(s, Instr)}
    return tuple(name for name in NAMES if name in used)


def slots(func: Func, name: str) -> int:
    """How many mbarriers a queue of ``func`` needs, a power of two.

    Raises :class:`TargetError` where there is no bound on the groups under way.
    """
    peak = _Groups(name, func.producer).after(func.body, (0, 0))[2]
    if name == TILES and func.producer:  # whose mbarriers tell of copies of all queues
        peak += _Groups(LATE_TILES, True).after(func.body, (0, 0))[2]
    # In a cluster, a warp may have done with a copy and not have told all blocks yet.
    more = int(cluster_of(func.body) > 1)
    return 1 << max(peak - 1 + more, 0).bit_length()


def warps(func: Func) -> int:
    """Those that arrive where copies are freed without a barrier of the block; 0 where none are."""
    if not any(isinstance(s, Sync) and s.split for s in statements(func.body)):
        return 0
    threads = block_threads(func)
    assert threads is not None  # of which split_barriers makes sure
    return threads // WARP


class _Groups:
    """Bounds on the groups of which some thread may not know the end: now, after the next barrier
    of the block, and the most so far. A ``producer``, which commits them, comes to no barrier but
    arrivals."""

    def __init__(self, name: str, producer: bool) -> None:
        self.name, self.producer = name, producer

    def _meets(self, barrier: Sync) -> bool:
        """Whether who commits has gone through a barrier when all others have come to it."""
        return not self.producer or barrier.split

    def after(self, s: Stmt, state: tuple[int, ...]) -> tuple[int, int, int]:
        now, later, peak = (*state, 0)[:3]
        match s:
            case Queue(queue, "commit") if queue == self.name:
                if now >= _MOST:
                    raise TargetError(
                        f"more than {_MOST} groups of tile loads are committed and not awaited: "
                        "pipeline the stage, or load it where it is used"
                    )
                return now + 1, later + 1, max(peak, now + 1)
            case Queue(queue, "wait", pending) if queue == self.name:
                return now, min(later, pending), peak
            case Sync("shared") if self._meets(s):
                return later, later, peak
            case Seq(stmts):
                for child in stmts:
                    now, later, peak = self.after(child, (now, later, peak))
            case If(_, then, orelse):
                one = self.after(then, (now, later, peak))
                other = (now, later, peak)
                if orelse is not None:
                    other = self.after(orelse, other)
                return max(one[0], other[0]), max(one[1], other[1]), max(one[2], other[2])
            case For(_, _, _, _, body):
                while True:
                    found = self.after(body, (now, later, peak))
                    joined = (max(now, found[0]), max(later, found[1]), max(peak, found[2]))
                    if joined == (now, later, peak):
                        break
                    now, later, peak = joined
            case Allocate(_, body) | Remark(body=body) | Let(_, _, body):
                return self.after(body, (now, later, peak))
        return now, later, peak


def _load(dimensions: int) -> str:
    """A load of a box; where it begins is given with the outermost dimension first, the
    instruction wants the innermost."""
    names = [f"c{k}" for k in range(dimensions)]
    params = ", ".join(f"int {name}" for name in names)
    places = ", ".join(f"%{3 + k}" for k in range(dimensions))
    values = ", ".join(f'"r"({name})' for name in reversed(names))
    return f"""  __device__ __forceinline__ void load(
      void* to, const TensorMap* map, unsigned bytes, {params}) {{
    const unsigned barrier = place(issued);
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;"
        :: "r"(barrier), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.tensor.{dimensions}d.shared::cluster.global.tile"
        ".mbarrier::complete_tx::bytes [%0], [%1, {{{places}}}], [%2];"
        :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(map), "r"(barrier), {values}
        : "memory");
  }}"""


def _load_windows(rank: int) -> str:
    """A load of windows of images of ``rank`` dimensions, and the place of the tap after it."""
    space, taps = "dhw"[3 - rank :], "qrs"[3 - rank :]
    names = ["n", *space, "c"]
    params = ", ".join(f"int {name}" for name in (*names, *taps))
    places, offsets = (
        ", ".join(f"%{first + k}" for k in range(count))
        for first, count in ((3, rank + 2), (rank + 5, rank))
    )
    values = [f'"r"({name})' for name in ("c", *space[::-1], "n")]
    values += [f'"h"((unsigned short){name})' for name in taps[::-1]]
    return f"""  __device__ __forceinline__ void load_windows(
      void* to, const TensorMap* map, unsigned bytes, {params}) {{
    const unsigned barrier = place(issued);
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;"
        :: "r"(barrier), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.tensor.{rank + 2}d.shared::cluster.global.im2col"
        ".mbarrier::complete_tx::bytes [%0], [%1, {{{places}}}], [%2], {{{offsets}}};"
        :: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(map), "r"(barrier),
           {", ".join(values)} : "memory");
  }}"""


#: What a kernel with such a queue needs: the type of its maps, and of the object.
TEXT = """struct __align__(128) TensorMap { unsigned long long words[16]; };

template <unsigned Slots, unsigned Warps, bool Whole> struct TileLoads {
  unsigned barriers, issued, awaited, freed, warp;
  bool first, leading, arriving;
  __device__ __forceinline__ TileLoads(unsigned long long* barriers_, bool first_)
      : barriers((unsigned)__cvta_generic_to_shared(barriers_)), issued(0), awaited(0), freed(0),
        warp(Whole ? 0xffffffffu : own_warp()),
        first(first_), leading(Warps && __shfl_sync(0xffffffffu, (int)first_, 0)),
        arriving((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32 == 0) {
    if (first) {
      for (unsigned k = 0; k < Slots; ++k)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(place(k)) : "memory");
      for (unsigned k = 0; k < (Warps ? Slots : 0); ++k)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
            :: "r"(place(k) + Slots * 8), "r"(Warps) : "memory");
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
  }
  __device__ __forceinline__ void produce() {
    first = threadIdx.x % 32 == 0;
    leading = true;
    arriving = false;
  }
  __device__ __forceinline__ void consume() {
    first = leading = false;
  }
  __device__ __forceinline__ void announce(const TensorMap* map) const {
    if (first) asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory");
  }
  __device__ __forceinline__ unsigned place(unsigned group) const {
    return barriers + group % Slots * 8;
  }
  __device__ __forceinline__ void turn_to(unsigned group) { issued = group; }
  __device__ __forceinline__ void commit() {
    if (first)
      asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(place(issued)) : "memory");
    ++issued;
  }
  __device__ __forceinline__ static unsigned own_warp() {
    const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const unsigned left = blockDim.x * blockDim.y * blockDim.z - (thread & ~31u);
    return left < 32 ? (1u << left) - 1 : 0xffffffffu;
  }
  __device__ __forceinline__ void pass(unsigned barrier, unsigned parity) const {
    asm volatile("{ .reg .pred p, q;\\n"
        "again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\\n"
        "vote.sync.all.pred q, p, %2;\\n"
        "@!q bra.uni again; }" :: "r"(barrier), "r"(parity), "r"(warp) : "memory");
  }
  __device__ __forceinline__ void wait(unsigned pending) {
    #pragma unroll 1
    for (; issued - awaited > pending; ++awaited) pass(place(awaited), awaited / Slots & 1);
  }
  __device__ __forceinline__ void free() {
    const unsigned barrier = place(freed) + Slots * 8;
    __syncwarp();
    if (arriving)
      asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(barrier) : "memory");
    if (leading) pass(barrier, freed / Slots & 1);
    ++freed;
  }
""" + "\n".join([*map(_load, range(1, 6)), *map(_load_windows, range(1, 4))]) + "\n};"  # fmt: skip
