"""Floats of 16 bits in CUDA C++ without CUDA's headers, whose 15,000 lines NVRTC reads each time.

What most kernels do with them is to move, to pack and to convert them. These are the types and the
functions for that, with the names, the layout and the instructions of ``cuda_fp16.h`` and
``cuda_bf16.h``, so that the same machine code comes of them.
"""

from __future__ import annotations

from tilewright.codegen.c_like_dialect import FOREIGN

#: By element type, the header that has it.
HEADERS = {"float16": "cuda_fp16.h", "bfloat16": "cuda_bf16.h"}
#: What a text needs that does more with them.
ARITHMETIC = "arithmetic in 16 bits"

#: Pairs are copied as the headers do it, by words; an instruction as text counts by its lines where
#: the compiler decides what to unroll.
_TYPES = """struct __align__(2) {one} {{ unsigned short bits; }};
struct __align__(4) {two} {{
  {one} x, y;
  {two}() = default;
  __device__ __forceinline__ {two}(const {two}& other) {{
    *(unsigned*)this = *(unsigned*)&other;
  }}
  __device__ __forceinline__ {two}& operator=(const {two}& other) {{
    *(unsigned*)this = *(unsigned*)&other;
    return *this;
  }}
}};
static __device__ __forceinline__ {one} __float2{name}(float x) {{
  {one} y;
  asm("{{ cvt.rn.{ptx}.f32 %0, %1;}}\\n" : "=h"(y.bits) : "f"(x));
  return y;
}}
static __device__ __forceinline__ float __{name}2float({one} x) {{
  float y;
{widen}
  return y;
}}
static __device__ __forceinline__ {two} __halves2{name}2(
    {one} x, {one} y) {{
  {two} pair;
  asm("{{ mov.b32 %0, {{%1, %2}};}}\\n" : "=r"(*(unsigned*)&pair) : "h"(x.bits), "h"(y.bits));
  return pair;
}}
static __device__ __forceinline__ {two} __{name}2{name}2({one} x) {{
  {two} pair;
  asm("{{ mov.b32 %0, {{%1, %1}};}}\\n" : "=r"(*(unsigned*)&pair) : "h"(x.bits));
  return pair;
}}"""
_WIDEN = """  asm("{{ cvt.f32.{ptx} %0, %1;}}\\n" : "=f"(y) : "h"(x.bits));"""
_WIDEN_BFLOAT16 = f"""#if __CUDA_ARCH__ >= 900
{_WIDEN.format(ptx="bf16")}
#else
  asm("{{ mov.b32 %0, {{0, %1}};}}\\n" : "=f"(y) : "h"(x.bits));
#endif"""

_FLOAT16 = _TYPES.format(
    one="half", two="half2", name="half", ptx="f16", widen=_WIDEN.format(ptx="f16")
)
#: Before compute capability 8.0 there is no instruction that rounds to them.
_BFLOAT16 = (
    "#if __CUDA_ARCH__ >= 800\n"
    + _TYPES.format(
        one="__nv_bfloat16", two="__nv_bfloat162", name="bfloat16", ptx="bf16",
        widen=_WIDEN_BFLOAT16,
    )
    + "\n#else\n#include <cuda_bf16.h>\n#endif"
)  # fmt: skip
_TEXTS = {"cuda_fp16.h": _FLOAT16, "cuda_bf16.h": _BFLOAT16}


def headers(needs: set[str], alone: bool) -> list[str]:
    """What a text begins with that needs these headers: themselves, or what it takes of them where
    it takes no more and stands ``alone``, with no text beside it that may include them."""
    wanted = sorted(name for name in needs if name.endswith(".h"))
    own = alone and not needs & {ARITHMETIC, FOREIGN} and not set(wanted) - set(_TEXTS)
    return [_TEXTS[name] if own else f"#include <{name}>" for name in wanted]
