"""What is computed of constants ahead of a kernel's calls: packed filters, say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir.buffer import Buffer
from tilewright.ir.func import Module
from tilewright.runtime.array import view
from tilewright.runtime.kernel import Kernel
from tilewright.runtime.ndarray import Device, NDArray, empty


@dataclass(frozen=True)
class Preparation:
    """A kernel that is run once for constants, and where what it makes goes.

    Attributes
    ----------
    kernel : takes constants, then what it writes.
    reads : which of the arguments that the program was declared with the constants are.
    takes : by parameter of a call, which of these arguments it is, or -1 - k for what ``kernel``
        writes as its k-th.
    """

    kernel: Kernel
    reads: tuple[int, ...]
    takes: tuple[int, ...]

    @staticmethod
    def of(whole: Module, part: Module, ahead: Kernel, rest: Kernel) -> Preparation:
        """That of a module of which ``part`` and what ``rest`` has are the parts; ``ahead`` has a
        program like that one."""
        place = {p: k for k, p in enumerate(whole.params)}
        params = part.params
        reads = [p for p in params if p in place]
        place |= {p: -1 - k for k, p in enumerate(params[len(reads) :])}
        takes = tuple(place[p] for p in rest.program.module.params)
        return Preparation(ahead, tuple(place[p] for p in reads), takes)

    @property
    def places(self) -> dict[str, list[int]]:
        """What :meth:`parse` reads."""
        return {"reads": list(self.reads), "takes": list(self.takes)}

    @staticmethod
    def parse(ahead: Kernel, rest: Kernel, places: dict[str, list[int]]) -> Preparation:
        """The inverse of :attr:`places`; raises :class:`ValueError` where these are none."""
        reads, takes = tuple(places["reads"]), tuple(places["takes"])
        made = len(ahead.signature.params) - len(reads)
        number = len(reads) + len(takes)
        if any(type(k) is not int or not -made <= k < number for k in (*reads, *takes)):
            raise ValueError(f"{places} are no places of arguments")
        if len(takes) != len(rest.signature.params) or made < 1 or min(reads, default=0) < 0:
            raise ValueError(f"{len(takes)} places of {len(rest.signature.params)} arguments")
        return Preparation(ahead, reads, takes)

    @property
    def types(self) -> list[tuple[tuple[int, ...], str]]:
        """The shapes and types of what the kernel writes."""
        made = self.kernel.signature.params[len(self.reads) :]
        return [(p.constant_shape or (), str(p.dtype)) for p in made if isinstance(p, Buffer)]

    def run(self, constants: Sequence[Any], device: str | None = None) -> tuple[NDArray, ...]:
        """What the kernel makes of constants, in new arrays, when it is there: calls read constants
        before the kernels in front of them have ended."""
        where = device or (view(constants[0]).device if constants else "cpu")
        made = tuple(empty(shape, dtype, where) for shape, dtype in self.types)
        self.kernel(*constants, *made)
        Device.parse(where).sync()
        return made

    def arguments(self, args: Sequence[Any], made: Sequence[Any]) -> list[Any]:
        """The arguments of a call, for those of the whole program and what was made ahead."""
        return [args[k] if k >= 0 else made[-1 - k] for k in self.takes]


@dataclass(frozen=True)
class Ahead:
    """A ``kernel`` that is left to whoever has the device: it ``reads`` these arrays of the host,
    and makes the constants of these numbers."""

    kernel: Kernel
    reads: tuple[Any, ...]
    makes: tuple[int, ...]
