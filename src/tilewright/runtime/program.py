"""What a backend makes of a module: something that can be launched, kept and looked at.

A backend is a module ``tilewright.runtime.<kind>`` with

``compile_module(module, target, artifacts=None, meanwhile=...) -> Program``
    Generate and compile. ``artifacts``, where given, are what :meth:`Program.artifacts` returned
    for the same module on a machine with the same tag: use them instead of compiling. The bodies
    of ``module.funcs`` are then empty (``Seq(())``) while parameters, launch axes, workspaces and
    attributes are all there, so the artifacts hold the source too. A backend whose
    ``artifacts()`` is empty gets the whole module every time. Where there are none, ``meanwhile``
    is called before it returns: at first, or while a compiler is at work that holds no lock of
    Python.
``cache_tag(target) -> str``
    Everything beside the program that compiled code depends on: versions of libraries, features
    of the processor, the architecture that ``target`` resolves to.
``check_tag(target, tag) -> str``
    Optional: why code compiled elsewhere, under that tag, cannot run here; "" where it can.
``allocate(nbytes, device) -> DeviceMemory``, ``synchronize(device)``
    Only where the backend has memory of its own: memory for an array (:mod:`.ndarray`).

A program may also have ``launch_raw(pointers, scalars, stream)``: the arguments as two tuples of
int, in the order of :func:`tilewright.runtime.signature.variables` for the scalars. The call of a
kernel then takes some microseconds less. It checks nothing: callers pass as many addresses as there
are buffers, of memory as large as the shapes that the scalars give, and scalars for which the
program has room for its offsets (a model's batches are held to
:meth:`tilewright.topi.problem.Problem.most_of`). One without may have ``bound(arrays, scalars)``: a
launch whose arguments are set once, or None for arrays that it cannot be of.

It raises :class:`tilewright.ir.errors.TargetError` where a library or a device is missing, with
the line that installs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tilewright.ir.func import Module
from tilewright.runtime.array_view import ArrayView
from tilewright.target import Target


@dataclass(frozen=True)
class Resources:
    """What one kernel takes, a thread; sizes in bytes, None where it is not known."""

    registers: int | None = None
    shared_memory: int | None = None
    spills: int | None = None
    stack: int | None = None


class Program(Protocol):
    """A module compiled for one target."""

    module: Module
    target: Target
    #: Devices whose arrays :meth:`launch` takes, by prefix: ("cpu",), ("cuda",), ("opencl", "cpu").
    devices: tuple[str, ...]

    @property
    def source(self) -> str:
        """The text generated: LLVM IR, CUDA C++, OpenCL C, or the loops for sim."""

    @property
    def assembly(self) -> str:
        """The machine's instructions as text; made when it is asked for."""

    @property
    def resources(self) -> Mapping[str, Resources]:
        """By kernel name."""

    def launch(
        self, arrays: Sequence[ArrayView], scalars: Mapping[str, int], stream: Any = None
    ) -> None:
        """Run it once.

        ``arrays`` hold one view a buffer of ``module.params``, in that order, already checked;
        ``scalars`` every symbolic extent and scalar parameter by the name of its variable.
        Workspaces are the program's own business. On a GPU it does not wait for the end.
        """

    def measure(
        self, arrays: Sequence[ArrayView], scalars: Mapping[str, int], number: int, repeat: int
    ) -> list[float]:
        """Seconds a launch, averaged over ``number`` launches, ``repeat`` times; warmed up."""

    def artifacts(self) -> dict[str, bytes]:
        """What to keep on disk so that the next process need not compile."""
