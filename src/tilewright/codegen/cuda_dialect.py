"""CUDA C++: its types, operators, functions and accesses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar

from tilewright.codegen.c_like_dialect import Dialect, Launch
from tilewright.codegen.c_like_text import (
    BIT_AND,
    EQUALITY,
    UNARY,
    Code,
    call,
    code,
    infix,
    wrapped,
)
from tilewright.codegen.cuda_bytes import TEXTS as BYTES
from tilewright.codegen.cuda_bytes import is_byte, rounded_near, saturated
from tilewright.codegen.cuda_functions import BOUNDED, HELPERS, SINGLE, before_rounding, rounded
from tilewright.codegen.cuda_halves import ARITHMETIC, HEADERS
from tilewright.codegen.cuda_vectors import VECTOR_NAMES, CudaVectors, is_half
from tilewright.codegen.mbarriers import NAMES
from tilewright.codegen.registers import Registers
from tilewright.codegen.warps import warp_part
from tilewright.ir import expr as E
from tilewright.ir.buffer import Buffer
from tilewright.ir.dtype import FLOAT8, DType, dtype
from tilewright.ir.errors import TargetError
from tilewright.ir.float8 import bits_of
from tilewright.ir.func import Func
from tilewright.ir.tf32 import TF32_FUNCTIONS
from tilewright.target.boxes import TensorMap
from tilewright.target.devices import STATIC_SHARED, compute_capability
from tilewright.target.queues import AWAIT_PRODUCTS, TILES
from tilewright.target.target import APART, blocks_each, overlaps, shared_apart

_NATIVE_16 = (E.Add, E.Sub, E.Mul, E.Div, E.Min, E.Max)
_FLOAT32 = dtype("float32")
#: What cuda_fp8.h calls floats of 8 bits.
_FP8 = {"float8_e4m3fn": "__NV_E4M3", "float8_e5m2": "__NV_E5M2"}

#: Bytes of a line of the second-level cache, and those of a constant that is fetched ahead.
_LINE, _FETCHED = 128, 1 << 23


class CudaDialect(CudaVectors):
    """CUDA C++ as NVRTC and nvcc take it.

    ``arch`` is the architecture ("sm_90a"), "" for any. ``aligned`` tells whether
    pointer parameters are at multiples of 16 bytes; where not, their elements are moved one by one.
    ``registers`` is what the compiler receives about them.
    """

    kind = "cuda"
    is_gpu = True
    static_shared_limit = STATIC_SHARED
    reserved = Dialect.reserved | frozenset(
        "threadIdx blockIdx blockDim gridDim warpSize half half2 at_least at_most load_where_or "
        f"load_where load_where_as {' '.join(NAMES)} TensorMap TileLoads shared_address "
        f"own_register exchange_in_odd_rows follow_previous_kernel {AWAIT_PRODUCTS} upper_bfloat16 "
        "ClusterLoads meet_cluster of_block fetch_ahead".split()
        + [*HELPERS, *BYTES, *VECTOR_NAMES]
    )
    types: ClassVar[dict[str, str]] = {
        **Dialect.types,
        "int8": "signed char", "int16": "short", "int32": "int", "int64": "long long",
        "uint8": "unsigned char", "uint16": "unsigned short", "uint32": "unsigned int",
        "uint64": "unsigned long long", "float16": "half", "bfloat16": "__nv_bfloat16",
        **dict.fromkeys(FLOAT8, "unsigned char"),
    }  # fmt: skip

    def __init__(
        self, arch: str = "", aligned: bool = True, registers: Registers = Registers()
    ) -> None:
        super().__init__()
        self.arch = arch
        self.among = 0  # threads that are in a barrier, where these are not all of a block
        self.aligned = aligned
        self.wide_params = False  # whether the text relies on that alignment
        self.less = registers.less

    def type_name(self, t: DType) -> str:
        header = HEADERS.get(t.element)
        if header:
            self.require(header)
        if t.lanes > 1:
            return self.vector_name(t.element, t.lanes)
        return super().type_name(t)

    def infinity(self, t: DType) -> Code:
        if t.bits == 64:
            return code("__longlong_as_double(0x7ff0000000000000)")
        return code("__int_as_float(0x7f800000)")

    def nan(self, t: DType) -> Code:
        if t.bits == 64:
            return code("__longlong_as_double(0x7ff8000000000000)")
        return code("__int_as_float(0x7fffffff)")

    # Operators

    def native(self, node: type[E.Expr], t: DType) -> bool:
        if t.lanes == 4 and is_byte(t):
            return node in (E.Min, E.Max)
        return is_half(t) and node in _NATIVE_16

    def binary(self, node: type[E.Expr], t: DType, a: Code, b: Code) -> Code:
        if is_half(t):
            self.require(ARITHMETIC)
        return super().binary(node, t, a, b)

    def negate(self, t: DType, a: Code) -> Code:
        if is_half(t):
            self.require(ARITHMETIC)
        return super().negate(t, a)

    def extremum(self, name: str, t: DType, a: Code, b: Code) -> Code:
        if is_half(t):
            return call(f"__h{name}{'2' if t.lanes == 2 else ''}_nan", a, b)
        if t.lanes == 4:
            function = f"bytes_{name}{t.kind[0].replace('i', 's')}"
            self.require(function)
            return call(function, a, b)
        if t.is_float:
            self.require("bounds")
            return call("at_least" if name == "max" else "at_most", a, b)
        return call(name, a, b)

    def bound(self, name: str, t: DType, nan: bool) -> str:
        if not nan or t is not _FLOAT32:
            return super().bound(name, t, nan)
        self.require("bounds")
        return "at_least" if name == "max" else "at_most"

    def nearest(self, to: DType, x: E.Expr) -> E.Expr | None:
        return rounded_near(to, x)

    def saturated(self, to: DType, x: E.Expr) -> tuple[str, E.Expr] | None:
        # Before, an instruction of a low rate would round each.
        return saturated(to, x) if self.arch and compute_capability(self.arch) >= 86 else None

    def plain_cast(self, to: DType, x: Code) -> Code:
        name = self.type_name(to)
        return code(f"({name}){x.at(UNARY)}", UNARY)

    def floating(self, t: DType, value: float) -> Code:
        return code(str(bits_of(value, t))) if t.is_float8 else super().floating(t, value)

    def cast(self, to: DType, source: DType, x: Code) -> Code:
        if source.is_float8:
            self.require("cuda_fp16.h", "cuda_fp8.h")
            half = call("half", call("__nv_cvt_fp8_to_halfraw", x, _FP8[source.kind]))
            return half if to == "float16" else self.cast(to, dtype("float16"), half)
        if to.is_float8:
            self.require("cuda_fp8.h")
            short = source == _FLOAT32 or is_half(source) or source.is_bool or source.bits < 32
            wide = dtype("float32" if short else "float64")
            wide_x = x if source == wide else self.cast(wide, source, x)
            name = f"__nv_cvt_{self.type_name(wide)}_to_fp8"
            return call(name, wide_x, "__NV_SATFINITE", _FP8[to.kind])
        if is_half(source) and (to.is_int or to.is_bool or to.bits == 64 or is_half(to)):
            x, source = self.cast(_FLOAT32, source, x), _FLOAT32
        if is_half(source) and to is _FLOAT32:
            return call("__half2float" if source.kind == "float" else "__bfloat162float", x)
        if is_half(to):
            self.type_name(to)
            if source != _FLOAT32:
                x = self.plain_cast(_FLOAT32, x)
            return call("__float2half" if to.kind == "float" else "__float2bfloat16", x)
        return super().cast(to, source, x)

    # Functions

    def before_rounding(self, e: E.Expr, to: DType) -> E.Expr:
        return before_rounding(e, to)

    def function(self, name: str, t: DType, args: Sequence[Code]) -> Code:
        if t.is_float and t.bits == 16:
            if name in ("fma", "abs"):
                self.require(ARITHMETIC)
                return call(f"__h{name}", *args)
            wide = [self.cast(_FLOAT32, t, a) for a in args]
            made = self.function(rounded(name), _FLOAT32, wide)
            return made if name == "isnan" else self.cast(t, _FLOAT32, made)
        if name in BYTES:
            self.require(name)
            return call(name, *args)
        if name in SINGLE and t is _FLOAT32:
            self.require("approximate", SINGLE[name], *(("bounds",) if name in BOUNDED else ()))
            return call(SINGLE[name], *args)
        if name in TF32_FUNCTIONS:
            bits = call("__float_as_uint", args[0])
            if name == "round_tf32":  # as ptxas has cvt.rna.tf32.f32
                bits = code(f"({bits} + 0x1000u)")
            return call("__uint_as_float", code(f"{bits} & 0xffffe000u", BIT_AND))
        if name in ("rsqrt", "exp10"):
            return call(name + ("f" if t.bits == 32 else ""), *args)
        return super().function(name, t, args)

    def popcount(self, t: DType, x: Code) -> Code:
        if t.bits < 32 and t.kind == "int":
            x = self.plain_cast(dtype(f"uint{t.bits}"), x)
        return call("__popcll" if t.bits == 64 else "__popc", x)

    def bits(self, t: DType, x: Code) -> Code:
        if t.bits == 32:
            return call("__float_as_uint" if t.is_float else "__uint_as_float", x)
        if t.is_float:
            return self.plain_cast(dtype("uint64"), call("__double_as_longlong", x))
        return call("__longlong_as_double", self.plain_cast(dtype("int64"), x))

    def shuffle(self, name: str, t: DType, value: Code, lane: Code) -> Code:
        functions = {
            "shuffle_xor": "__shfl_xor_sync",
            "shuffle_down": "__shfl_down_sync",
            "shuffle": "__shfl_sync",
        }
        if name not in functions:
            raise TargetError(f"there is no warp shuffle {name!r}: there are {sorted(functions)}")
        if is_half(t):
            self.require(ARITHMETIC)
        made = call(functions[name], "0xffffffff", value, lane)
        if t.is_bool:
            return infix(made, "!=", code("0"), EQUALITY)
        return self.plain_cast(t, made) if t.is_int and t.bits < 32 else made

    # Memory

    def promises(self, buffer: Buffer, align: int) -> bool:
        if align <= max(buffer.dtype.bytes, buffer.align if buffer.scope == "local" else 0):
            return True
        if buffer.scope == "global":
            self.wide_params = self.wide_params or self.aligned
            return self.aligned and align <= 16
        return buffer.scope != "local" and align <= max(16, buffer.align)

    def prefetch(self, buffer: Buffer, pointer: Code) -> str:
        return f'asm volatile("prefetch.global.L2 [%0];" :: "l"({pointer}))'

    def barrier(self, scope: str) -> Iterable[str]:
        if scope == "cluster":
            self.require("clusters")
            return ("meet_cluster();",)
        if self.among and scope != "warp":
            return (f'asm volatile("bar.sync 1, {self.among};" ::: "memory");',)
        return ("__syncwarp();" if scope == "warp" else "__syncthreads();",)

    def of_block(self, name: str, rank: Code) -> str:
        self.require("clusters")
        return f"of_block({name}, {rank})"

    def shared_pool(self, name: str, align: int = 16) -> str:
        self.pool = name
        return f"extern __shared__ __align__({align}) unsigned char {name}[];"

    def shared_array(self, buffer: Buffer, name: str, size: int, offset: int | None) -> str:
        t = self.storage_name(buffer.dtype, "shared")
        if offset is None:
            return f"__shared__ __align__({max(16, buffer.align)}) {t} {name}[{size}];"
        start = f"{self.pool} + {offset}" if offset else self.pool
        return f"{t}* const {name} = ({t}*)({start});"

    def warp_part(self, buffer: Buffer, name: str, whole: str, size: int, func: Func) -> str:
        t = self.storage_name(buffer.dtype, "shared")
        part = warp_part(func, "threadIdx.{}".format)
        return f"{t}* const {name} = {whole} + {part} * {size};"

    def local_array(self, buffer: Buffer, name: str, size: int) -> str:
        t = self.storage_name(buffer.dtype, "local")
        least = 4 if self.width(buffer.dtype) > 1 and size * buffer.dtype.bytes >= 4 else 0
        align = max(least, buffer.align)  # what an instruction asks of its operand
        return f"{f'__align__({align}) ' if align else ''}{t} {name}[{size}];"

    # Tensor maps

    def tensor_maps(self, func: Func) -> tuple[TensorMap, ...]:
        found: tuple[TensorMap, ...] = func.tensor_maps if self.aligned else ()
        if found:
            self.wide_params = True
            self.require("tile loads")
        return found

    def map_parameter(self, name: str) -> str:
        return f"const __grid_constant__ TensorMap {name}"

    def begin_loads(
        self, queue: str, barriers: str, count: int, warps: int, whole: bool, maps: Sequence[str],
        cluster: int,
    ) -> Iterable[str]:  # fmt: skip
        first = "(threadIdx.x | threadIdx.y | threadIdx.z) == 0"
        announced = (f"{queue}.announce(&{name});" for name in maps)
        kind = f"TileLoads<{count}, {warps}, {str(whole).lower()}>"
        if cluster > 1 and queue == TILES:
            self.require("loads of clusters")
            kind = f"ClusterLoads<{count}, {warps}, {str(whole).lower()}, {cluster}>"
        return (f"{kind} {queue}({barriers}, {first});", *announced)

    def end_loads(self) -> Iterable[str]:
        return (f"{TILES}.meet();",)

    def divide_loads(self, queue: str, producer: bool) -> str:
        return f"{queue}.{'produce' if producer else 'consume'}();"

    def is_consumer(self, threads: int) -> str:
        return f"__shfl_sync(0xffffffffu, (int)threadIdx.x, 0) < {threads}"

    @contextmanager
    def consumers(self, threads: int) -> Iterator[None]:
        self.among = threads
        yield
        self.among = 0

    def free_copies(self) -> str:
        return f"{TILES}.free();"

    # The frame

    def parameter(self, buffer: Buffer, name: str, written: bool) -> str:
        const = "" if written else "const "
        return f"{const}{self.storage_name(buffer.dtype, 'global')}* __restrict__ {name}"

    def signature(self, symbol: str, params: Sequence[str], launch: Launch) -> str:
        bounds = ""
        if launch.block is not None:
            threads = math.prod(launch.block)
            each = 0
            if self.less is not None and launch.grid is not None:
                most = blocks_each(self.arch, launch.grid, threads, launch.shared)
                each = max(most - self.less, 0)
            bounds = f"__launch_bounds__({threads}{f', {each}' if each else ''}) "
        if launch.cluster > 1:
            bounds = f"__cluster_dims__({launch.cluster}, 1, 1) {bounds}"
        return wrapped(f'extern "C" __global__ void {bounds}{symbol}(', params, ")")

    def shared_asked(self, launch: Launch, boxes: bool) -> int:
        if launch.block is None or launch.grid is None or not overlaps(self.arch):
            return launch.shared
        threads = math.prod(launch.block)
        if not boxes and blocks_each(self.arch, launch.grid, threads, launch.shared) > APART:
            return launch.shared
        return shared_apart(self.arch, launch.grid, threads, launch.shared)

    def begin_early(self) -> Iterable[str]:
        return ('asm volatile("griddepcontrol.launch_dependents;");',)

    def begin(self, constants: Mapping[str, int]) -> Iterable[str]:
        if not overlaps(self.arch):
            return ()
        self.require("follow")

        lines = {name: -(-size // _LINE) for name, size in constants.items() if size <= _FETCHED}
        if lines:
            self.require("fetch")
        fetched = (f"fetch_ahead({name}, {count}u);" for name, count in lines.items())
        return (*fetched, "if (!follow_previous_kernel()) return;")

    def axis(self, tag: str, uniform: bool = False) -> str:
        if uniform and tag in ("threadIdx.y", "threadIdx.z"):
            return f"__shfl_sync(0xffffffffu, (int){tag}, 0)"
        return f"(int){tag}"

    def unroll(self) -> Iterable[str]:
        return ("#pragma unroll",)

    def keep(self) -> Iterable[str]:
        return ("#pragma unroll 1",)
