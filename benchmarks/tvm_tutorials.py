"""TVM's own tutorials through :mod:`tilewright.tvm`, unchanged but for their imports.

``python benchmarks/tvm_tutorials.py CHECKOUT`` takes a checkout of TVM, 0.6 to 0.19 (nothing of it
is kept here), and runs the tutorials of operators, schedules and AutoTVM, or those that are named,
each in a process of its own, with ``from tilewright import tvm`` for ``import tvm``. It prints a
line each, with the end of what went wrong; those that a checkout lacks are passed over.
``opt_conv_cuda``, ``opt_conv_tensorcore`` and ``tune_conv2d_cuda`` need a GPU;
``--instead-of-cuda sim`` names another target to the rest.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import measure

#: Those that readers of the articles know.
NAMES = (
    "tensor_expr_get_started", "intro_topi", "autotvm_matmul_x86", "schedule_primitives",
    "reduction", "scan", "tensorize", "extern_op", "tuple_inputs", "opt_gemm", "opt_conv_cuda",
    "opt_conv_tensorcore", "tune_conv2d_cuda", "tune_simple_template", "intrin_math",
    "auto_scheduler_matmul_x86",
)  # fmt: skip


def changed(text: str, target: str) -> str:
    """A tutorial with its imports changed, and maybe a target in the place of "cuda"."""
    text = re.sub(r"^(\s*)import tvm$", r"\1from tilewright import tvm", text, flags=re.M)
    text = re.sub(r"^(\s*)import tvm\.[\w.]+$", r"\1from tilewright import tvm", text, flags=re.M)
    text = re.sub(r"^(\s*)from tvm\b", r"\1from tilewright.tvm", text, flags=re.M)
    text = re.sub(r"^(\s*)import topi$", r"\1from tilewright.tvm import topi", text, flags=re.M)
    if target:
        text = re.sub("""(["'])cuda\\1""", f'"{target}"', text)
        text = re.sub(r"tvm\.(cuda|gpu)\(", "tvm.cpu(", text)
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=Path, help="of TVM, with the folder gallery or tutorials")
    parser.add_argument("names", nargs="*", default=list(NAMES))
    parser.add_argument("--instead-of-cuda", default="", metavar="TARGET")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for one")
    options = parser.parse_args()
    rows = []
    found = {
        p.stem: p for f in ("gallery", "tutorials") for p in (options.checkout / f).rglob("*.py")
    }
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    there = os.pathsep.join(str(Path(p).resolve()) for p in paths if p)
    for name in options.names:
        if name not in found:
            continue
        path = found[name]
        begin = time.monotonic()
        try:
            with TemporaryDirectory() as folder:  # where tutorials leave logs, too
                copy = Path(folder) / path.name
                copy.write_text(changed(path.read_text(), options.instead_of_cuda))
                done = subprocess.run(
                    [sys.executable, str(copy)], cwd=folder, capture_output=True, text=True,
                    timeout=options.limit, env={**os.environ, "PYTHONPATH": there},
                )  # fmt: skip
            said = (done.stderr.strip().splitlines() or [""])[-1]
            result = "runs" if done.returncode == 0 else said[:150] or str(done.returncode)
        except subprocess.TimeoutExpired:
            result = f"not in {options.limit:.0f} s"
        rows.append({"tutorial": name, "result": result, "seconds": time.monotonic() - begin})
        print(f"{name}: {result}", flush=True)
    print(measure.table(rows))


if __name__ == "__main__":
    main()
