"""What a text of CUDA C++ begins with: headers, types and functions that it relies on."""

from __future__ import annotations

from tilewright.codegen.cluster_loads import TEXT as CLUSTER_LOADS
from tilewright.codegen.cluster_memory import TEXT as CLUSTERS
from tilewright.codegen.cuda_bytes import TEXTS as BYTES
from tilewright.codegen.cuda_functions import TEXTS
from tilewright.codegen.cuda_halves import headers
from tilewright.codegen.cuda_vectors import structure
from tilewright.codegen.mbarriers import TEXT as TILE_LOADS
from tilewright.codegen.registers import own_register
from tilewright.codegen.total_integers import total_functions
from tilewright.target.instructions._shared import (
    EXCHANGE,
    EXCHANGE_IN_ODD_ROWS,
    OWN,
    SHARED_ADDRESS,
)
from tilewright.target.queues import AWAIT_PRODUCTS

#: Loads of what is there or else of zeros. Vectors of what is shorter than a register are loaded as
#: integers and only then taken as what they are: else the compiler chooses between parts of it.
_LOAD_WHERE = """template <typename T>
static __device__ __forceinline__ T load_where(bool on, const void* p) {
  T value = {};
  if (on) value = *(const T*)p;
  return value;
}
template <typename T, typename Bits>
static __device__ __forceinline__ T load_where_as(bool on, const void* p) {
  const Bits bits = load_where<Bits>(on, p);
  return *(const T*)&bits;
}
template <typename T, typename Bits>
static __device__ __forceinline__ T load_where_or(bool on, const void* p, const T& other) {
  Bits bits = *(const Bits*)&other;
  if (on) bits = *(const Bits*)p;
  return *(const T*)&bits;
}"""

#: Lets the next kernel be launched once every block of this one has begun, then waits for the end
#: of the one before; without effect where kernels are launched one after another. What is only read
#: is loaded as what nobody writes (ld.global.nc), and ptxas moves such loads over any wait, but not
#: over a branch that may end the kernel: this one never does, which ptxas cannot know.
_FOLLOW = """static __device__ __forceinline__ bool follow_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  unsigned blocks;
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;\\n  mov.u32 %0, %%nctaid.x;" : "=r"(blocks) :: "memory");
  return blocks != 0;
#else
  return true;
#endif
}"""

#: Brings what no kernel writes to the second-level cache while the kernel before this one still
#: runs; each thread a part of it. What is there is what is in memory, whoever writes to it.
_FETCH = """static __device__ __forceinline__ void fetch_ahead(const void* p, unsigned lines) {
#if __CUDA_ARCH__ >= 900
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned first = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  asm volatile("griddepcontrol.launch_dependents;");
  const unsigned all = threads * gridDim.x * gridDim.y * gridDim.z;
  for (unsigned i = block * threads + first; i < lines; i += all)
    asm volatile("prefetch.global.L2 [%0];" :: "l"((const char*)p + i * 128ull));
#endif
}"""

#: Waits for all products in the background. Where ptxas makes two roundings to 16 bits one
#: instruction, it moves that over the wait and so reads sums that are not there yet (CUDA 13.0),
#: but not over a branch that may end the kernel, as above.
_AWAIT_PRODUCTS = f"""static __device__ __forceinline__ bool {AWAIT_PRODUCTS}() {{
  unsigned blocks;
  asm volatile("wgmma.wait_group.sync.aligned 0;\\n  mov.u32 %0, %%nctaid.x;"
               : "=r"(blocks) :: "memory");
  return blocks != 0;
}}"""

#: One instruction, where taking the upper half out first would be another.
_UPPER_BFLOAT16 = """static __device__ __forceinline__ float upper_bfloat16(
    const __nv_bfloat162& pair) {
  return __uint_as_float(*(const unsigned*)&pair & 0xffff0000u);
}"""

#: One instruction (PTX ISA, "max"), of NaN NaN; of doubles there is none.
_BOUND = """static __device__ __forceinline__ float {name}(float x, float b) {{
#if __CUDA_ARCH__ >= 800
  float y;
  asm("{ptx}.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(b));
  return y;
#else
  return x {sign} b || b != b ? b : x;
#endif
}}
static __device__ __forceinline__ double {name}(double x, double b) {{
  return x {sign} b || b != b ? b : x;
}}"""

#: Helper functions, by the name that the text uses; they round towards minus infinity.
_DIVISION = """static __device__ __forceinline__ {t} floordiv{s}({t} a, {t} b) {{
  const {t} q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
}}
"""
_MODULO = """static __device__ __forceinline__ {t} floormod{s}({t} a, {t} b) {{
  const {t} r = a % b;
  return (r != 0 && (r < 0) != (b < 0)) ? r + b : r;
}}
"""

_TOTAL = total_functions(
    "static __device__ __forceinline__ ",
    ("int", "long long", "unsigned int", "unsigned long long"),
)


def prelude(needs: set[str], own: bool = True, alone: bool = True) -> str:
    """Headers, types and functions that a text relies on; ``own`` as in
    :class:`~tilewright.codegen.registers.Registers`, ``alone`` as in
    :func:`~tilewright.codegen.cuda_halves.headers`."""
    parts = headers(needs, alone)
    structures = [n.removeprefix("struct ") for n in needs if n.startswith("struct ")]
    parts += [structure(name) for name in sorted(structures)]
    if "follow" in needs:
        parts.append(_FOLLOW)
    if "fetch" in needs:
        parts.append(_FETCH)
    if AWAIT_PRODUCTS in needs:
        parts.append(_AWAIT_PRODUCTS)
    if "load_where" in needs:
        parts.append(_LOAD_WHERE)
    if "tile loads" in needs:
        parts.append(TILE_LOADS)
    if "loads of clusters" in needs:
        parts.append(CLUSTER_LOADS)
    if "clusters" in needs:
        parts.append(CLUSTERS)
    if "shared_address" in needs:
        parts.append(SHARED_ADDRESS)
    if EXCHANGE in needs:
        parts.append(EXCHANGE_IN_ODD_ROWS)
    if OWN in needs:
        parts.append(own_register(own))
    if "upper_bfloat16" in needs:
        parts.append(_UPPER_BFLOAT16)
    if "bounds" in needs:
        parts.append(_BOUND.format(name="at_least", ptx="max", sign="<"))
        parts.append(_BOUND.format(name="at_most", ptx="min", sign=">"))
    parts += [text for name, text in (TEXTS | BYTES).items() if name in needs]
    for suffix, t in (("", "int"), ("64", "long long")):
        if f"floordiv{suffix}" in needs:
            parts.append(_DIVISION.format(t=t, s=suffix))
        if f"floormod{suffix}" in needs:
            parts.append(_MODULO.format(t=t, s=suffix))
    parts += [text for name, text in _TOTAL.items() if name in needs]
    return "\n".join(parts) + "\n\n" if parts else ""
