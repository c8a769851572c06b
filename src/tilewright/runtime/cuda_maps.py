"""Tensor maps: what the host tells TMA of a tensor, for each launch.

A map holds the tensor's address, extents and strides and the extents of a box (CUDA driver API,
"Tensor Map Object Management"). It is a parameter of the kernel, made when the kernel is called
with an array, or extents, for which it has not been made before.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from operator import itemgetter
from typing import Any

from tilewright.ir.buffer import Buffer
from tilewright.ir.dtype import FLOAT8
from tilewright.ir.errors import ArgumentError
from tilewright.ir.expr import Var
from tilewright.ir.func import Module
from tilewright.runtime.cuda_driver import check, load_driver
from tilewright.runtime.signature import evaluate
from tilewright.target.boxes import TensorMap, stride_problem

#: Bytes of a map, and what its address is a multiple of.
SIZE, _ALIGN = 128, 128
#: The first version of CUDA whose driver makes them.
_VERSION = 12000
#: Bytes of a tensor, and the last version of a driver, of which a map of windows is mended.
SMALL, WRONG = 131_072, 13_010
#: The maps of this many calls are remembered.
_KEPT = 1024
#: By type of elements, the end of the driver's name for it; of integers, signs do not matter, and
#: of 8 bits nothing else.
_TYPES = {**dict.fromkeys(FLOAT8, "UINT8"), "float16": "FLOAT16", "bfloat16": "BFLOAT16",
          "float32": "FLOAT32", "float64": "FLOAT64", "int8": "UINT8", "uint8": "UINT8",
          "int16": "UINT16", "uint16": "UINT16", "int32": "INT32", "uint32": "UINT32",
          "int64": "INT64", "uint64": "UINT64"}  # fmt: skip


@dataclass(frozen=True)
class Tiled:
    """The arguments of the driver's function, the innermost dimension first; strides in bytes.

    ``box`` counts the elements that are skipped, too. With ``corners``, of where windows begin,
    counted from the first pixel of an image and from the last, it has pixels by channels of them.
    """

    kind: str
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    swizzle: str
    corners: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    @property
    def is_small(self) -> bool:
        """Whether drivers to 13.1 mark the map wrongly: of windows of a tensor of few bytes
        (NVIDIA/cutlass, copy_traits_sm90_im2col)."""
        return self.corners is not None and self.extents[-1] * self.strides[-1] < SMALL


def tiled(made: TensorMap, buffer: Buffer, scalars: Mapping[str, int]) -> Tiled:
    """The description of boxes of ``buffer``, whose symbolic extents are ``scalars``; of one that
    has nothing along its first dimension as if there was one (:meth:`TensorMaps.stand_ins`).

    Raises :class:`ArgumentError` where there is no such map: strides that are no multiple of 16
    bytes, or nothing along another dimension.
    """
    shape = [evaluate(extent, scalars) for extent in buffer.shape]
    strides = [evaluate(stride, scalars) for stride in buffer.strides]
    for d, extent in enumerate(shape):
        if extent < 1 and d:
            raise ArgumentError(f"{buffer.name} has no elements along dimension {d}")
    shape[0] = max(1, shape[0])
    within = made.box.within if made.window is None else ()
    for d, stride in enumerate(strides[:-1]):
        problem = "" if d in within else stride_problem(buffer, d, stride)
        if problem:
            raise ArgumentError(problem)
    if made.window is not None:
        w = made.window
        problem = w.limits(shape[1:-1])
        if problem:
            raise ArgumentError(f"{buffer.name}: {problem}")
        return Tiled(
            _TYPES[str(buffer.dtype)],
            tuple(reversed(shape)),
            tuple(stride * buffer.dtype.bytes for stride in reversed(strides[:-1])),
            made.box.extents,
            (1, *reversed(w.steps), 1),
            f"{made.swizzle}B" if made.swizzle else "NONE",
            (w.first[::-1], w.last(shape[1:-1])[::-1]),
        )
    order, extents = made.box.dimensions[::-1], made.box.extents[::-1]
    steps = made.box.steps[::-1] or (1,) * len(order)
    counts, digits = made.box.counts[::-1], made.box.places[::-1]
    for last, count in zip(order, counts, strict=True):
        for d in range(last - count + 1, last):
            if strides[d] != strides[d + 1] * shape[d + 1]:
                raise ArgumentError(
                    f"dimensions {d} and {d + 1} of {buffer.name} are copied as one, but rows of "
                    f"{shape[d + 1]} elements, {strides[d + 1]} apart, lie {strides[d]} apart: "
                    "copy it so that they follow one another"
                )
    return Tiled(
        _TYPES[str(buffer.dtype)],
        tuple(
            most or prod(shape[last - count + 1 : last + 1]) // step
            for last, count, (step, most) in zip(order, counts, digits, strict=True)
        ),
        tuple(
            strides[d] * step * buffer.dtype.bytes
            for d, (step, _) in zip(order[1:], digits[1:], strict=True)
        ),
        tuple(n * step for n, step in zip(extents, steps, strict=True)),
        steps,
        f"{made.swizzle}B" if made.swizzle else "NONE",
    )


#: Writes a map of the tensor at an address, the second one, into memory at the first.
Encode = Callable[[int, int], None]


def encoder(what: Tiled) -> Encode:
    """What makes maps of such tensors; memory for a map begins at a multiple of its size."""
    rank = len(what.extents)
    box: tuple[Any, ...] = ((ctypes.c_uint32 * rank)(*what.box),)
    if what.corners is not None:
        pixels, channels = what.box
        own = [(ctypes.c_int * len(corner))(*corner) for corner in what.corners]
        box = (*own, ctypes.c_uint32(channels), ctypes.c_uint32(pixels))
    fixed = (
        (ctypes.c_uint64 * rank)(*what.extents),
        (ctypes.c_uint64 * rank)(*what.strides),
        *box,
        (ctypes.c_uint32 * rank)(*what.steps),
        _enumerator("CUtensorMapInterleave", "INTERLEAVE", "NONE"),
        _enumerator("CUtensorMapSwizzle", "SWIZZLE", what.swizzle),
        _enumerator("CUtensorMapL2promotion", "L2_PROMOTION", "L2_128B"),
        _enumerator("CUtensorMapFloatOOBfill", "FLOAT_OOB_FILL", "NONE"),
    )
    kind = _enumerator("CUtensorMapDataType", "DATA_TYPE", what.kind)
    windows = what.corners is not None
    function = _driver_function("Im2col" if windows else "Tiled")
    wrong = what.is_small and check(load_driver().cuDriverGetVersion()) <= WRONG

    def encode(storage: int, address: int) -> None:
        status = function(storage, kind, rank, address, *fixed)
        if status:
            check(
                (load_driver().CUresult(status),),
                f"describing a tensor of extents {what.extents} in boxes of {what.box}",
            )
        if wrong:
            ctypes.c_uint64.from_address(storage + 8).value &= ~(1 << 21)

    return encode


@cache
def _driver_function(mode: str) -> Callable[..., int]:
    """The driver's ``cuTensorMapEncodeTiled``, or that of another mode: the bindings of Python give
    it room for a map that need not be aligned as it wants."""
    name = f"cuTensorMapEncode{mode}".encode()
    address = check(load_driver().cuGetProcAddress(name, _VERSION, 0))
    pointer, number = ctypes.c_void_p, ctypes.c_int
    box = [pointer] * 2 + [ctypes.c_uint32] * 2 if mode == "Im2col" else [pointer]
    kinds = (pointer, number, ctypes.c_uint32, *[pointer] * 3, *box, pointer, *[number] * 4)
    made: Callable[..., int] = ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(int(address))
    return made


def _enumerator(enum: str, prefix: str, name: str) -> int:
    return int(getattr(getattr(load_driver(), enum), f"CU_TENSOR_MAP_{prefix}_{name}"))


class MapStorage:
    """Memory for the maps of all kernels, from which the driver reads them at a launch."""

    __slots__ = ("_memory", "addresses")

    def __init__(self, count: int) -> None:
        self._memory = ctypes.create_string_buffer(count * SIZE + _ALIGN)
        start = -(-ctypes.addressof(self._memory) // _ALIGN) * _ALIGN
        self.addresses = tuple(start + SIZE * k for k in range(count))


class TensorMaps:
    """The maps that the kernels of a module take.

    Parameters
    ----------
    by_kernel : of each kernel, in the order of its parameters.
    arrays : the arrays and workspaces of a call, in the order in which it has their addresses.
    variables : the symbolic extents, in the order in which it has their values.
    """

    def __init__(
        self,
        module: Module,
        by_kernel: Sequence[Sequence[TensorMap]],
        arrays: Sequence[Buffer],
        variables: Sequence[Var],
    ) -> None:
        self._names = [v.name for v in variables]
        self._maps: list[tuple[TensorMap, Buffer, int]] = []
        self.of_kernel: list[list[int]] = []
        for func, maps in zip(module.funcs, by_kernel, strict=True):
            own = []
            for made in maps:
                buffer = func.params[made.param]
                assert isinstance(buffer, Buffer)
                own.append(len(self._maps))
                self._maps.append((made, buffer, arrays.index(buffer)))
            self.of_kernel.append(own)
        places = sorted({position for _, _, position in self._maps})
        self._described = itemgetter(*places) if places else None
        self._storages: dict[tuple[Any, tuple[int, ...]], MapStorage] = {}
        self._encoders: dict[tuple[int, ...], list[Encode]] = {}

    def __len__(self) -> int:
        return len(self._maps)

    def stand_ins(self, scalars: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
        """Which arrays are empty, for given extents, and bytes of zeros that stand in for each: a
        map has elements, and a kernel may ask for its first boxes before it knows that no step
        reads them."""
        values = dict(zip(self._names, scalars, strict=True))
        found, nbytes = set[int](), 0
        for _, buffer, position in self._maps:
            first, *shape = (evaluate(extent, values) for extent in buffer.shape)
            if first == 0:
                _, *strides = [evaluate(stride, values) for stride in buffer.strides]
                last = sum((e - 1) * s for e, s in zip(shape, strides, strict=True))
                found.add(position)
                nbytes = max(nbytes, (last + 1) * buffer.dtype.bytes)
        return tuple(sorted(found)), nbytes

    def described(self, scalars: Sequence[int]) -> list[tuple[Tiled, int]]:
        """What the driver receives of each, and the place of the address among those of a call."""
        values = dict(zip(self._names, scalars, strict=True))
        return [(tiled(made, buffer, values), place) for made, buffer, place in self._maps]

    def storage(self, pointers: Sequence[int], scalars: tuple[int, ...]) -> MapStorage:
        """The maps of a call with arrays at ``pointers``, and ``scalars``.

        Calls share them, in all threads: nobody writes to them any more. Whoever launches has to
        hold the storage until that is done.
        """
        described = () if self._described is None else self._described(pointers)
        key = described, scalars
        storage = self._storages.get(key)
        if storage is None:
            storage = self._make(pointers, scalars)
            if len(self._storages) >= _KEPT:
                self._storages.clear()
            self._storages[key] = storage
        return storage

    def _make(self, pointers: Sequence[int], scalars: tuple[int, ...]) -> MapStorage:
        encoders = self._encoders.get(scalars)
        if encoders is None:
            encoders = [encoder(what) for what, _ in self.described(scalars)]
            if len(self._encoders) >= _KEPT:
                self._encoders.clear()
            self._encoders[scalars] = encoders
        storage = MapStorage(len(self._maps))
        for encode, address, (_, _, position) in zip(
            encoders, storage.addresses, self._maps, strict=True
        ):
            encode(address, pointers[position])
        return storage
