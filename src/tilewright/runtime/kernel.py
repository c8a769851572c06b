"""Kernels: what :func:`tilewright.build` returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tilewright.ir.errors import ArgumentError
from tilewright.ir.func import Module
from tilewright.runtime.program import Program, Resources
from tilewright.runtime.signature import Signature
from tilewright.runtime.timing import Timing
from tilewright.target import Target

if TYPE_CHECKING:
    from tilewright.runtime.preparation import Preparation
    from tilewright.runtime.sim import SimReport

#: One measurement lasts at least this many seconds, where the caller does not say how many calls.
_SPAN = 0.02


class Kernel:
    """A compiled module, called with one argument a parameter.

    Arrays may be NumPy's, torch's, CuPy's, :class:`~tilewright.runtime.ndarray.NDArray` or
    anything that has ``__dlpack__``; outputs are passed like inputs and written in place. Symbolic
    extents are read off the shapes.

    Raises :class:`~tilewright.ir.errors.ArgumentError`, before anything is written, where an
    argument has another shape, type, device or layout than the kernel was built for, where an
    output is read-only, and where it shares memory with another argument.
    """

    def __init__(
        self,
        program: Program,
        written: tuple[int, ...],
        module: Module | Callable[[], Module] | None = None,
    ) -> None:
        self.program = program
        self.preparation: Preparation | None = None
        self.key = ""  # under which the cache has it
        self.target: Target = program.target
        self.name = program.module.name
        self.signature = Signature(program.module, written, program.devices)
        self._module = program.module if module is None else module
        self._quick: Any = _first_call(self)
        self._launch_raw: Any = getattr(program, "launch_raw", None)

    def __call__(self, *args: Any, stream: Any = None) -> None:
        """Run it; ``stream`` (CUDA and OpenCL) is the caller's, by default the current one."""
        found = self._quick(*args) if len(args) == len(self.signature.params) else None
        if found is not None:
            self._launch_raw(found[0], found[1], stream)
        else:
            views, scalars = self.signature.bind(args, once=True)
            self.program.launch(views, scalars, stream)

    def prepare(self, *constants: Any, device: str | None = None) -> tuple[Any, ...]:
        """What the program computes of constants alone, as arrays that calls take in their place.

        ``constants`` are those that :attr:`preparation` reads, in the order of the program's
        arguments; the arrays lie where they do, or on ``device``. Empty where nothing is computed
        of them.
        """
        return () if self.preparation is None else self.preparation.run(constants, device)

    def prepared(self, args: Sequence[Any]) -> list[Any]:
        """The arguments of calls, for those that the program was declared with: what depends on
        constants alone is computed now."""
        if self.preparation is None:
            return list(args)
        made = self.prepare(*(args[k] for k in self.preparation.reads))
        return self.preparation.arguments(args, made)

    def bind(self, *args: Any) -> Callable[[], None]:
        """The call with these arguments, checked once: ``kernel.bind(a, b)()`` only launches.

        The arrays must neither move nor change shape while it is in use.
        """
        views, scalars = self.signature.bind(args)
        raw = self._launch_raw
        if raw is None:
            ahead = getattr(self.program, "bound", None)
            call: Callable[[], None] | None = ahead(views, scalars) if ahead else None
            return call or (lambda: self.program.launch(views, scalars))
        pointers = tuple(v.pointer for v in views)
        values = tuple(scalars[v.name] for v in self.signature.variables)

        def launch(keep: Any = views) -> None:
            raw(pointers, values)

        return launch

    @property
    def module(self) -> Module:
        """The lowered program."""
        if not isinstance(self._module, Module):
            self._module = self._module()
        return self._module

    @property
    def ir(self) -> str:
        """The lowered program as text."""
        return repr(self.module)

    @property
    def source(self) -> str:
        """What was generated from it: LLVM IR, CUDA C++, OpenCL C, or the loops for sim."""
        return self.program.source

    def get_source(self, fmt: str = "") -> str:
        """:attr:`source`, or with ``fmt="asm"`` :attr:`assembly`; TVM's name for both."""
        return self.assembly if fmt in ("asm", "s", "ptx", "sass") else self.source

    @property
    def assembly(self) -> str:
        """The machine's instructions as text."""
        return self.program.assembly

    @cached_property
    def resources(self) -> Mapping[str, Resources]:
        """Registers, shared memory, spills and stack of each kernel, where known."""
        return self.program.resources

    def simulate(self, *args: Any) -> SimReport:
        """Run the program on the simulator, whatever the target, and report what a GPU hides.

        ``args`` as for a call, arrays of the CPU. Races, reads of what nobody wrote, accesses out
        of bounds and divergent barriers are in the report and not raised; so are bank conflicts,
        sectors moved and not used, and the figures of :class:`~tilewright.runtime.sim.SimReport`.
        """
        from tilewright.runtime.sim import simulate

        return simulate(self.module, args)

    def time(self, *args: Any, repeat: int = 10, number: int = 0) -> Timing:
        """Measure it, ``repeat`` times over ``number`` launches each.

        ``number`` 0 takes as many as last 20 ms. The outputs are written as by a call.
        """
        views, scalars = self.signature.bind(args)
        if not all(isinstance(x, int) for x in (repeat, number)) or repeat < 1 or number < 0:
            raise ArgumentError(f"repeat={repeat} and number={number} must be positive")
        if not number:
            once = min(self.program.measure(views, scalars, 1, 2))
            number = max(1, min(100_000, int(_SPAN / max(once, 1e-8))))
        return Timing(tuple(self.program.measure(views, scalars, number, repeat)), number)

    def time_evaluator(
        self, name: str = "", dev: Any = None, number: int = 0, repeat: int = 10, **_: Any
    ) -> Callable[..., Timing]:
        """TVM's form of :meth:`time`: a function of the arguments."""
        return lambda *args: self.time(*args, repeat=repeat, number=number)

    def save(self, path: str | Path) -> None:
        """Write it to one file, which :func:`tilewright.load` reads where the schedule is not.

        The file holds compiled code for the machine's kind, the program and the source.
        """
        from tilewright.runtime.save import save  # beside load, which makes kernels

        save(self, Path(path))

    def export_c(self, path: str | Path, name: str | None = None) -> None:
        """Write self-contained C (or CUDA C++) that needs nothing of Tilewright's, and a header
        that says how its function is called.

        ``name`` is the function's, by default the kernel's; for a kernel that was built without one
        it is made of the file's name.

        Raises :class:`~tilewright.ir.errors.TargetError` for targets without such a form, and
        :class:`~tilewright.ir.errors.ArgumentError` for a name that C keeps for itself.
        """
        from tilewright.runtime.export_c import export_c

        export_c(self, Path(path), name)

    def export(
        self, folder: str | Path, name: str | None = None, extents: Mapping[str, int] | None = None
    ) -> list[Path]:
        """Write a program that needs nothing of Tilewright's into ``folder``, which is made, as
        ``tilewright compile`` does for a model: C for llvm, C and CUDA C++ with machine code for
        cuda, C and OpenCL C for opencl, each with a header, a program that runs it on raw files,
        and a Makefile. Returns the files. Kernels that copy by tensor maps are written, too.

        Functions begin with ``name``, by default the kernel's, for one without the folder's;
        ``extents`` are those that are open, and the other scalars, by name.

        Raises :class:`~tilewright.ir.errors.TargetError` for sim and for instructions that C has no
        words for, :class:`~tilewright.ir.errors.ArgumentError` for a name or extents that do not
        fit, and :class:`~tilewright.runtime.files.FileError` where it cannot be written.
        """
        from tilewright.runtime.export import work_of, write  # which few programs need
        from tilewright.runtime.export_c import UNNAMED, function_name

        own = None if self.name == UNNAMED else function_name(self.name, Path(folder))
        return write([work_of(self, extents or {})], Path(folder), name or own)

    def __copy__(self) -> Kernel:
        return self  # nothing of it changes

    def __deepcopy__(self, memo: dict[int, Any]) -> Kernel:
        return self

    def __reduce__(self) -> NoReturn:
        raise ArgumentError(
            f"kernel {self.name} is not pickled: save(path) writes a file of it, which "
            "tilewright.load(path) reads in another process; threads may share it"
        )

    def __repr__(self) -> str:
        params = ", ".join(map(repr, self.signature.params))
        return f"<Kernel {self.name}({params}) for {self.target}>"


def _first_call(kernel: Kernel) -> Callable[..., Any]:
    """Makes the quick binder when it is first wanted, not when the kernel is built."""

    def bind(*args: Any) -> Any:
        from tilewright.runtime.fastcall import quick_binder

        made = quick_binder(kernel.signature) if kernel._launch_raw is not None else None
        kernel._quick = made or _never
        return kernel._quick(*args)

    return bind


def _never(*_: Any) -> None:
    return None
