"""Write the library's kernel for a problem as C or CUDA C++ that needs nothing of Tilewright's.

The kernel is the one that a call in Python would use: what was tuned for the problem, else what is
predicted to be fastest. Beside x.c (or x.cu) stands a header x.h, which declares its function and
says what it takes. Of several problems, FILE is a folder, and each file is named after its problem.

  tilewright export depthwise_conv2d --input 1x32x28x28 --filter 32x1x3x3 --padding 1 -o dw.c
  tilewright export depthwise_conv2d --set mobilenetv2 --target "cuda -arch=sm_80" -o layers
"""

from __future__ import annotations

import argparse
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
    parser.add_argument("--target", default="llvm", help='"llvm" or "cuda -arch=sm_80"')
    parser.add_argument("--name", help="of the function; by default that of the file")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="as dw.c or dw.cu")


def run(args: argparse.Namespace) -> int:
    """Build and write each kernel.

    Raises :class:`SelectError` where the library has none for a problem, :class:`FileError` where a
    file cannot be written.
    """
    from tilewright.ir.errors import ArgumentError, TargetError
    from tilewright.runtime.export_c import export_c, function_name
    from tilewright.runtime.files import writing
    from tilewright.target import Target

    named = _problems.problems(args)
    target = Target.parse(args.target)
    if target.kind not in ("llvm", "cuda"):
        raise TargetError(f"there is no export of a kernel for {target.kind}: use llvm or cuda")
    paths = [Path(args.output)]
    if len(named) > 1:
        if args.name is not None:
            raise ArgumentError(f"--name {args.name} is for one problem, there are {len(named)}")
        with writing(paths[0]):
            paths[0].mkdir(parents=True, exist_ok=True)
        suffix = ".cu" if target.kind == "cuda" else ".c"
        paths = [paths[0] / f"{one.problem.name}{suffix}" for one in named]
    for one, path in zip(named, paths, strict=True):
        name = function_name("main", path, args.name)
        kernel = _kernel(one.problem, target)
        export_c(kernel, path, name, f"{one.problem}")
        print(f"{name}: {path} and {path.with_suffix('.h')}")
    return 0


def _kernel(problem: Problem, target: Target) -> Kernel:
    """The first choice of the library's that can be built and written."""
    from tilewright import select
    from tilewright.ir.errors import TargetError
    from tilewright.select.algorithm import Scheduled
    from tilewright.select.first_buildable import first_buildable, spills_of

    def build(choice: select.Choice) -> Kernel:
        assert isinstance(choice.algorithm, Scheduled)
        kernel = choice.algorithm.kernel(problem, choice.config, target)
        if any(getattr(kernel.program, "maps", ())):
            raise TargetError(f"{choice} copies by tensor maps, which a file cannot make")
        return kernel

    own = (c for c in select.options(problem, target) if isinstance(c.algorithm, Scheduled))
    found = first_buildable(own, build, spills_of)
    if found is None:
        raise select.SelectError(select.reason(problem, target) or f"no kernel for {problem}")
    return found[0]
