"""TVM's own tutorials through :mod:`tilewright.tvm`, unchanged but for where ``import tvm`` leads.

``python benchmarks/tvm_tutorials.py CHECKOUT`` takes a checkout of TVM 0.19 (nothing of it is kept
here) and runs the tutorials of operators, schedules and AutoTVM, or those that are named, each in a
process of its own with ``tvm`` found in Tilewright's alias. It prints a line each, with the end of
what went wrong. ``opt_conv_cuda`` and ``tune_conv2d_cuda`` need a GPU; ``--instead-of-cuda sim``
names another target to the rest.
"""

from __future__ import annotations

import argparse
import runpy
import subprocess
import sys
import time
from pathlib import Path

import measure
from tvm_suite import TvmIsTilewright

#: Those that readers of the articles know.
NAMES = (
    "tensor_expr_get_started", "intro_topi", "autotvm_matmul_x86", "schedule_primitives",
    "reduction", "scan", "tensorize", "extern_op", "tuple_inputs", "opt_gemm", "opt_conv_cuda",
    "tune_conv2d_cuda",
)  # fmt: skip


def run(path: Path, target: str) -> None:
    """Run one, here."""
    sys.meta_path.insert(0, TvmIsTilewright())
    if target:
        text = path.read_text().replace('"cuda"', f'"{target}"').replace("tvm.cuda(", "tvm.cpu(")
        exec(compile(text, str(path), "exec"), {"__name__": "__main__"})
    else:
        runpy.run_path(str(path), run_name="__main__")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=Path, help="of TVM 0.19, with the folder gallery")
    parser.add_argument("names", nargs="*", default=list(NAMES))
    parser.add_argument("--instead-of-cuda", default="", metavar="TARGET")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for one")
    parser.add_argument("--run", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run(options.checkout, options.instead_of_cuda)
        return
    rows = []
    for name in options.names:
        (path,) = options.checkout.glob(f"gallery/**/{name}.py")
        command = [sys.executable, __file__, str(path), "--run"]
        command += ["--instead-of-cuda", options.instead_of_cuda] * bool(options.instead_of_cuda)
        begin = time.monotonic()
        try:
            found = subprocess.run(command, capture_output=True, text=True, timeout=options.limit)
            said = (found.stderr.strip().splitlines() or [""])[-1]
            result = "runs" if found.returncode == 0 else said[:150] or str(found.returncode)
        except subprocess.TimeoutExpired:
            result = f"not in {options.limit:.0f} s"
        rows.append({"tutorial": name, "result": result, "seconds": time.monotonic() - begin})
        print(f"{name}: {result}", flush=True)
    print(measure.table(rows))


if __name__ == "__main__":
    main()
