"""What is written: kernels in order, on inputs, outputs, constants and values between them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tilewright.ir.buffer import Buffer
from tilewright.ir.dtype import dtype
from tilewright.ir.errors import ArgumentError
from tilewright.runtime.kernel import Kernel
from tilewright.runtime.preparation import Ahead
from tilewright.runtime.signature import evaluate
from tilewright.target import Target

#: A shape, and the type of elements.
Kind = tuple[tuple[int, ...], str]


class Named(NamedTuple):
    """An input or an output, and the number of its memory."""

    name: str
    number: int
    kind: Kind


class Step(NamedTuple):
    """A kernel on memory of these numbers, behind ``offsets`` in bytes, with ``counts`` for its
    scalars; and on which ``stream``, which event it ``waits`` for and which it ``marks``, 0 where
    there is none."""

    kernel: Kernel
    arguments: tuple[int, ...]
    offsets: tuple[int, ...]
    kinds: tuple[Kind, ...]
    counts: tuple[int, ...]
    what: str
    stream: int = 0
    waits: int = 0
    marks: int = 0


@dataclass(frozen=True)
class Work:
    """What is written, for one batch.

    Attributes
    ----------
    constants : what is in the file of weights, and the shapes and types of what kernels that run
        ``ahead`` make, by number.
    offsets : where values between kernels are in one block of ``nbytes``, by number.
    slots : by number from 0 on, in which of several blocks values are, and the bytes of these.
    batch : what the program takes to run it; 0 where it takes none.
    """

    name: str
    target: Target
    inputs: tuple[Named, ...]
    outputs: tuple[Named, ...]
    steps: tuple[Step, ...]
    constants: Mapping[int, Any] = field(default_factory=dict)
    ahead: Sequence[Ahead] = ()
    offsets: Mapping[int, int] = field(default_factory=dict)
    nbytes: int = 0
    slots: tuple[Sequence[int], Sequence[int]] = ((), ())
    batch: int = 0
    has_weights: bool = True

    @property
    def arrays(self) -> tuple[Named, ...]:
        """Inputs, then outputs."""
        return (*self.inputs, *self.outputs)


def bytes_of(kind: Kind) -> int:
    """Of an array that is dense."""
    return math.prod(kind[0]) * dtype(kind[1]).bytes


def digest(data: bytes) -> bytes:
    """What differs where contents do."""
    return hashlib.blake2b(data).digest()


def work_of(kernel: Kernel, extents: Mapping[str, int], about: str = "") -> Work:
    """A kernel alone, for ``extents`` of those dimensions that are open, and other scalars;
    ``about`` is what it computes, in words.

    Raises :class:`ArgumentError` where these are others than there are, or than a call may have,
    and for arrays that have no elements, or strides of their own.
    """
    signature, name = kernel.signature, kernel.name
    wanted = [v.name for v in signature.variables]
    if sorted(wanted) != sorted(extents):
        given = ", ".join(f"{n!r}: 8" for n in wanted)
        raise ArgumentError(
            f"kernel {name} has the open extents {', '.join(wanted)}: give extents={{{given}}}"
            if wanted
            else f"kernel {name} has no open extents, and {', '.join(extents)} is given"
        )
    values = signature.values(extents)
    arrays = []
    for k, p in enumerate(signature.params):
        if isinstance(p, Buffer):
            shape = tuple(evaluate(e, values) for e in p.shape)
            if p.layout is not None:
                raise ArgumentError(f"{p.name} of kernel {name} has strides: programs have none")
            if min(shape, default=1) < 1:
                raise ArgumentError(f"{p.name} of kernel {name} has no elements: {list(shape)}")
            arrays.append((Named(p.name, k, (shape, str(p.dtype))), k in signature.written))
    named = [a for a, _ in arrays]
    step = Step(
        kernel, tuple(a.number for a in named), (0,) * len(named), tuple(a.kind for a in named),
        tuple(values.values()), name,
    )  # fmt: skip
    inputs, outputs = (tuple(a for a, w in arrays if w is written) for written in (False, True))
    about = about or ", ".join([name, *(f"{n}={x}" for n, x in values.items())])
    return Work(about, kernel.target, inputs, outputs, (step,), has_weights=False)
