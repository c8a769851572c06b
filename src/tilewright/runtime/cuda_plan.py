"""What launches of a module's kernels are, whatever device they are on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from tilewright.codegen.arguments import variables
from tilewright.ir.buffer import Buffer
from tilewright.ir.errors import TargetError
from tilewright.ir.func import Func, Module
from tilewright.runtime.cuda_maps import TensorMaps
from tilewright.runtime.signature import evaluate
from tilewright.target.boxes import TensorMap
from tilewright.target.devices import WARP

_TAGS = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z")
#: The largest grid and block (CUDA programming guide, "Technical specifications").
_MOST = (2**31 - 1, 65535, 65535, 1024, 1024, 64)


class Launches:
    """The kernels of a module, and where what they take is among what a call has.

    A call has the addresses of arrays, workspaces and maps, in this order, then scalars.

    Attributes
    ----------
    addresses : how many addresses a call has.
    parameters : of each kernel, the places of its parameters among addresses and scalars.
    structures : of each kernel, the places of its maps.
    """

    def __init__(
        self,
        module: Module,
        maps: Sequence[Sequence[TensorMap]] | None = None,
        written: Collection[int] = (),
    ) -> None:
        self.module = module
        self._results = [p for k in written if isinstance(p := module.params[k], Buffer)]
        buffers = [*(p for p in module.params if isinstance(p, Buffer)), *module.workspaces]
        self.scalars = variables(module)
        none: list[list[TensorMap]] = [[] for _ in module.funcs]
        self.maps = TensorMaps(module, none if maps is None else maps, buffers, self.scalars)
        self.addresses = len(buffers) + len(self.maps)
        slots: dict[Any, int] = {b: k for k, b in enumerate(buffers)}
        slots |= {v: self.addresses + k for k, v in enumerate(self.scalars)}
        self.parameters = [tuple(slots[p] for p in func.params) for func in module.funcs]
        self.structures = [tuple(len(buffers) + m for m in own) for own in self.maps.of_kernel]

    def sizes(self, scalars: Sequence[int]) -> list[tuple[int, tuple[int, ...]]]:
        """The kernels that are launched for these scalars, each with its grid and block.

        What has no elements to write is not launched: there are no maps of empty tensors.
        """
        values = {v.name: x for v, x in zip(self.scalars, scalars, strict=True)}
        if self._results and not any(evaluate(b.size, values) for b in self._results):
            return []
        found = [(k, _sizes(func, values)) for k, func in enumerate(self.module.funcs)]
        return [(k, sizes) for k, sizes in found if all(sizes)]

    def spaces(self, scalars: Sequence[int]) -> tuple[int, ...]:
        """Bytes of each workspace."""
        values = {v.name: x for v, x in zip(self.scalars, scalars, strict=True)}
        return tuple(
            max(evaluate(w.size, values), 1) * w.dtype.bytes for w in self.module.workspaces
        )


def _sizes(func: Func, values: dict[str, int]) -> tuple[int, ...]:
    """Grid and block; raises :class:`TargetError` where they are larger than a launch can be."""
    extents = {axis.tag: evaluate(axis.extent, values) for axis in func.launch}
    sizes = tuple(max(extents.get(tag, 1), 0) for tag in _TAGS)
    for tag, size, most in zip(_TAGS, sizes, _MOST, strict=True):
        if size > most:
            raise TargetError(
                f"kernel {func.name}: {tag} has {size} indices, CUDA allows {most}: split the axis "
                "and bind its parts to two of x, y and z"
            )
    threads = sizes[3] * sizes[4] * sizes[5]
    if func.producer:
        threads += WARP
        sizes = *sizes[:3], threads, 1, 1
    if threads > 1024:
        raise TargetError(
            f"kernel {func.name}: a block of {threads} threads, CUDA allows 1024: bind smaller "
            "factors to threadIdx"
        )
    return sizes
