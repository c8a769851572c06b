"""Constants on the device, and what kernels prepare of them: each once."""

from __future__ import annotations

import hashlib
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


class Held:
    """Arrays on a device, for as long as a graph holds them."""

    def __init__(self, arrays: Sequence[Array]) -> None:
        self.arrays = tuple(arrays)


#: What graphs of one model have of constants on a device, by what it is made of.
Pool: TypeAlias = WeakValueDictionary[Any, Held]


class Constants:
    """The constants of a graph by number, from ``first`` on; equal ones have the same, those of
    other graphs of a ``pool`` too, but on a CPU, where each graph has a block of them.

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
        self._pool = None if device == "cpu" or abroad else pool
        self._held: list[Held] = []
        self._digests: dict[Constant, bytes] = {}
        self._numbers: dict[Constant, int] = {}
        self._alike: dict[Any, list[Constant]] = {}
        self._prepared: dict[Any, tuple[int, ...]] = {}

    def __getitem__(self, constant: Constant) -> int:
        """The number of a constant, which calls read."""
        one = self._one(constant)
        if one not in self._numbers:
            (found,) = self._made(("", one), lambda: [self._there(one.array)])
            self._numbers[one] = self._add(found)
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
                return ahead.run(found, self._device)

            made = self._made(key, run)
            host = self._device == "cpu"
            self._prepared[key] = tuple(self._add(x._memory if host else x) for x in made)
        return self._prepared[key]

    def together(self) -> None:
        """Put all of them into one block of memory on a CPU, which has pages as large as there are:
        calls that read whole filters once are slowed by small ones."""
        if self._device != "cpu":
            return
        spaces = [-(-a.nbytes // ALIGNED) * ALIGNED for a in self.arrays.values()]
        block = aligned(sum(spaces))
        for (k, found), space in zip(list(self.arrays.items()), spaces, strict=True):
            own, block = block[: found.nbytes], block[space:]
            self.arrays[k] = own.view(found.dtype).reshape(found.shape)
            self.arrays[k][...] = found

    def _made(self, key: tuple[Any, ...], make: Callable[[], Sequence[Array]]) -> Sequence[Array]:
        """What is made of constants, which end the key: as another graph has it, if one has."""
        if self._pool is None:
            return make()
        what = key[0], *((c.type, self._digest(c)) for c in key[1:])
        held = self._pool.get(what)
        if held is None:
            held = self._pool[what] = Held(make())
        self._held.append(held)
        return held.arrays

    def _there(self, source: np.ndarray[Any, Any]) -> Array:
        return on_device(source, "cpu" if self._abroad else self._device)

    def _digest(self, constant: Constant) -> bytes:
        if constant not in self._digests:
            data = np.ascontiguousarray(constant.array).reshape(-1)
            self._digests[constant] = hashlib.blake2b(data.view(np.uint8).data).digest()
        return self._digests[constant]

    def _add(self, found: Array) -> int:
        number = self._first + len(self.arrays)
        self.arrays[number] = found
        return number

    def _one(self, constant: Constant) -> Constant:
        """The first constant that is equal."""
        alike = self._alike.setdefault(constant.type, [])
        for known in alike:
            if known is constant or _equal(known.array, constant.array):
                return known
        alike.append(constant)
        return constant


def _equal(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Whether two arrays of a type have the same bits."""
    few = a.size > 64 and a.reshape(-1)[:16].tobytes() != b.reshape(-1)[:16].tobytes()
    return not few and a.tobytes() == b.tobytes()


def on_device(source: np.ndarray[Any, Any], device: str) -> Array:
    """An array of the host as kernels on a device take it: dense, and there."""
    found = np.ascontiguousarray(source).reshape(source.shape)
    return found if device == "cpu" else array(found, device)


def aligned(nbytes: int) -> np.ndarray[Any, Any]:
    """Bytes of the host that begin at a multiple of :data:`ALIGNED`."""
    memory = np.empty(nbytes + ALIGNED, np.uint8)
    start = -memory.ctypes.data % ALIGNED
    return memory[start : start + nbytes]
