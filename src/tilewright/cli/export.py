"""Write the library's kernel for a problem as C, CUDA C++ or OpenCL C that needs nothing of
Tilewright's.

The kernel is the one that a call in Python would use: what was tuned for the problem, else what is
predicted to be fastest. Beside x.c (or x.cu) stands a header x.h, which declares its function and
says what it takes. Of several problems, FILE is a folder, and each file is named after its problem.

  tilewright export depthwise_conv2d --input 1x32x28x28 --filter 32x1x3x3 --padding 1 -o dw.c
  tilewright export depthwise_conv2d --set mobilenetv2 --target "cuda -arch=sm_80" -o layers

With --program, -o names a folder for a program that runs the kernel on raw files, with a Makefile,
as `tilewright compile` writes one of a model; of several problems, it has a folder for each:

  tilewright export gemm --m 64 --n 64 --k 64 --target opencl --program -o product
  make -C product && product/product a.raw b.raw out.raw 100
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.cli import _problems

if TYPE_CHECKING:
    from tilewright.runtime.kernel import Kernel
    from tilewright.target import Target
    from tilewright.topi.problem import Problem


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The problem, the target, and where the files go."""
    _problems.add_arguments(parser)
    parser.add_argument(
        "--target", default="llvm", help='"llvm", "cuda -arch=sm_80", with --program also "opencl"'
    )
    parser.add_argument(
        "--program", action="store_true", help="a folder with a program that runs it"
    )
    parser.add_argument("--name", help="of the function; by default that of the file")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        required=True,
        help="as dw.c or dw.cu; a folder with --program",
    )


def run(args: argparse.Namespace) -> int:
    """Build and write each kernel.

    Raises :class:`SelectError` where the library has none for a problem, :class:`FileError` where a
    file cannot be written.
    """
    from tilewright.ir.errors import ArgumentError, TargetError
    from tilewright.runtime.export import work_of, write
    from tilewright.runtime.export_c import export_c, function_name
    from tilewright.runtime.files import writing
    from tilewright.target import Target

    named = _problems.problems(args)
    target = Target.parse(args.target)
    if target.kind not in ("llvm", "cuda") and not args.program:
        raise TargetError(
            f"there is no single file of a kernel for {target.kind}: use llvm or cuda, or --program"
        )
    paths = [Path(args.output)]
    if len(named) > 1:
        if args.name is not None:
            raise ArgumentError(f"--name {args.name} is for one problem, there are {len(named)}")
        with writing(paths[0]):
            paths[0].mkdir(parents=True, exist_ok=True)
        suffix = "" if args.program else ".cu" if target.kind == "cuda" else ".c"
        paths = [paths[0] / f"{one.problem.name}{suffix}" for one in named]
    for one, path in zip(named, paths, strict=True):
        name = function_name("main", path, args.name)
        kernel = _kernel(one.problem, target, args.program)
        if args.program:
            files = write([work_of(kernel, {}, f"{one.problem}")], path, name)
            print(
                f"{files[0]} and {len(files) - 1} files beside it: make -C {shlex.quote(str(path))}"
            )
        else:
            export_c(kernel, path, name, f"{one.problem}")
            print(f"{name}: {path} and {path.with_suffix('.h')}")
    return 0


def _kernel(problem: Problem, target: Target, program: bool = False) -> Kernel:
    """The first choice of the library's that can be built and written, in a file or a program."""
    from tilewright import select
    from tilewright.ir.errors import TargetError
    from tilewright.select.algorithm import Scheduled
    from tilewright.select.first_buildable import first_buildable, spills_of

    def build(choice: select.Choice) -> Kernel:
        assert isinstance(choice.algorithm, Scheduled)
        kernel = choice.algorithm.kernel(problem, choice.config, target)
        if not program and any(getattr(kernel.program, "maps", ())):
            raise TargetError(f"{choice} copies by tensor maps, which --program writes")
        return kernel

    own = (c for c in select.options(problem, target) if isinstance(c.algorithm, Scheduled))
    found = first_buildable(own, build, spills_of)
    if found is None:
        raise select.SelectError(select.reason(problem, target) or f"no kernel for {problem}")
    return found[0]
