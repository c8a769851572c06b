"""Constants on the device, and what kernels prepare of them: each once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np

from tilewright.graph.memory import ALIGNED
from tilewright.graph.value import Constant, Value
from tilewright.runtime.ndarray import array
from tilewright.runtime.preparation import Ahead, Preparation
from tilewright.topi.problem import TensorType

#: An array on the device: NumPy's on a CPU.
Array = Any
#: Elements of constants that are compared before all of them, and the dimensions up to which
#: NumPy's ``flat`` goes through an array without a copy.
_FEW, _FLAT = 16, 32


class Held:
    """Arrays on a device, made of some constants, for as long as a graph holds them."""

    def __init__(self, sources: Sequence[Constant]) -> None:
        self.sources = tuple(sources)
        self.arrays: list[Array] = []


#: What graphs of one model have of constants on a device, by what it is made of.
Pool: TypeAlias = WeakValueDictionary[Any, Held]


class Constants:
    """The constants of a graph by number, from ``first`` on; equal ones have the same, and one
    place in memory for all graphs of a ``pool``. Arrays that they are made of are compared, so
    nobody may write to these.

    ``arrays`` has those that calls read: a filter of which only a packed copy is read is not there.
    Where the device is ``abroad``, they are the host's, and the :class:`TensorType` of what kernels
    are to prepare; ``ahead`` has these.
    """

    def __init__(
        self, first: int, device: str, pool: Pool | None = None, abroad: bool = False
    ) -> None:
        self.arrays: dict[int, Array] = {}
        self.ahead: list[Ahead] = []
        self._abroad = abroad and device != "cpu"
        self._first, self._device = first, device
        self._pool: Pool = Pool() if pool is None or abroad else pool
        self._held: list[Held] = []
        self._own: list[tuple[int, Held, int]] = []
        self._numbers: dict[Constant, int] = {}
        self._alike: dict[Any, list[Constant]] = {}
        self._prepared: dict[Any, tuple[int, ...]] = {}

    def __getitem__(self, constant: Constant) -> int:
        """The number of a constant, which calls read."""
        one = self._one(constant)
        if one not in self._numbers:
            (self._numbers[one],) = self._made("", [one], lambda: [self._there(one.array)])
        return self._numbers[one]

    def prepared(self, ahead: Preparation, read: Sequence[Value]) -> tuple[int, ...]:
        """The numbers of what a kernel makes of constants, now where it has not."""
        constants = [self._one(x) for x in read if isinstance(x, Constant)]
        key = (ahead, *constants)
        if key not in self._prepared:
            # In the shapes of the kernel: a depthwise filter lies the same in all of its own.
            shapes = [getattr(p, "constant_shape", None) for p in ahead.kernel.signature.params]
            pairs = list(zip(constants, shapes, strict=False))

            def run() -> Sequence[Array]:
                given = [c.array if e is None else c.array.reshape(e) for c, e in pairs]
                found = [self._there(x) for x in given]
                if self._abroad:
                    makes = range(len(self.arrays), len(self.arrays) + len(ahead.types))
                    numbers = tuple(self._first + k for k in makes)
                    self.ahead.append(Ahead(ahead.kernel, tuple(found), numbers))
                    return [TensorType(*t) for t in ahead.types]
                made = ahead.run(found, self._device)
                return [x._memory for x in made] if self._device == "cpu" else made

            self._prepared[key] = self._made(ahead, constants, run)
        return self._prepared[key]

    def together(self) -> None:
        """Put those that no other graph has into one block of memory on a CPU, which has pages as
        large as there are: calls that read whole filters once are slowed by small ones."""
        if self._device != "cpu":
            return
        block = aligned(sum(_space(held.arrays[k]) for _, held, k in self._own))
        for number, held, k in self._own:
            found = held.arrays[k]
            own, block = block[: found.nbytes], block[_space(found) :]
            held.arrays[k] = self.arrays[number] = own.view(found.dtype).reshape(found.shape)
            held.arrays[k][...] = found

    def _made(
        self,
        by: Preparation | str,
        sources: Sequence[Constant],
        make: Callable[[], Sequence[Array]],
    ) -> tuple[int, ...]:
        """The numbers of what is made of constants: as another graph has it, if one has."""
        first = self._first + len(self.arrays)
        held = self._of_pool(by, sources)
        if not held.arrays:
            held.arrays += make()
            self._own += [(first + k, held, k) for k in range(len(held.arrays))]
        self._held.append(held)
        self.arrays |= {first + k: found for k, found in enumerate(held.arrays)}
        return tuple(range(first, self._first + len(self.arrays)))

    def _of_pool(self, by: Preparation | str, sources: Sequence[Constant]) -> Held:
        """What the pool has of equal constants; new, without arrays, where it has nothing."""
        what = by, *((c.type, _few(c.array)) for c in sources)
        number = 0
        while True:
            held = self._pool.setdefault((what, number), Held(sources))
            pairs = zip(held.sources, sources, strict=True)
            if all(_equal(one.array, other.array) for one, other in pairs):
                return held
            number += 1

    def _there(self, source: np.ndarray[Any, Any]) -> Array:
        return on_device(source, "cpu" if self._abroad else self._device)

    def _one(self, constant: Constant) -> Constant:
        """The first constant that is equal."""
        alike = self._alike.setdefault(constant.type, [])
        for known in alike:
            if known is constant or _equal(known.array, constant.array):
                return known
        alike.append(constant)
        return constant


def _few(array: np.ndarray[Any, Any]) -> bytes:
    """The first elements: most arrays that differ do there."""
    flat = array.flat if array.ndim <= _FLAT else array.reshape(-1)
    return np.asarray(flat[:_FEW]).tobytes()


def _equal(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Whether two arrays of a type have the same bits, of which one place in memory is a proof."""
    places = [(x.__array_interface__["data"], x.strides) for x in (a, b)]
    if places[0] == places[1] or _few(a) != _few(b):
        return places[0] == places[1]
    return a.tobytes() == b.tobytes()


def _space(array: Array) -> int:
    """Bytes of a block that an array takes."""
    return int(-(-array.nbytes // ALIGNED) * ALIGNED)


def on_device(source: np.ndarray[Any, Any], device: str) -> Array:
    """An array of the host as kernels on a device take it: dense, and there."""
    found = np.ascontiguousarray(source).reshape(source.shape)
    return found if device == "cpu" else array(found, device)


def aligned(nbytes: int) -> np.ndarray[Any, Any]:
    """Bytes of the host that begin at a multiple of :data:`ALIGNED`."""
    memory = np.empty(nbytes + ALIGNED, np.uint8)
    start = -memory.ctypes.data % ALIGNED
    return memory[start : start + nbytes]
