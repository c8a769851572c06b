"""What importing Tilewright costs: nothing that a program without it would not have loaded."""

import subprocess
import sys

import pytest

HEAVY = {"numpy", "llvmlite", "islpy", "rich", "torch", "onnx", "onnxruntime", "cuda", "pyopencl"}


def loaded_by(program: str, depth: int = 1) -> set[str]:
    """What is in a fresh Python's ``sys.modules`` after a program, by the first ``depth`` parts of
    each name."""
    found = f"{{'.'.join(m.split('.')[:{depth}]) for m in sys.modules}}"
    show = f"{program}\nimport sys\nprint(*{found})"
    done = subprocess.run(
        [sys.executable, "-c", show], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.splitlines()[-1].split())


def test_importing_tilewright_loads_no_library():
    assert not HEAVY & loaded_by("import tilewright")


@pytest.mark.parametrize("name", ["te", "Target", "create_schedule", "topi"])
def test_the_language_loads_no_compiler_and_no_framework(name):
    assert not (HEAVY - {"numpy"}) & loaded_by(f"import tilewright; tilewright.{name}")


def test_the_help_of_the_command_line_loads_no_library():
    program = "from tilewright.cli.main import parser; parser().format_help()"
    assert not (HEAVY - {"numpy"}) & loaded_by(program)


def test_a_model_loads_no_template_and_no_lowering():
    program = "import tilewright.graph.model, tilewright.graph.onnx.read, tilewright.runtime.llvm"
    needless = {"topi.templates", "lower.pipeline", "select.choice"}
    assert not {f"tilewright.{name}" for name in needless} & loaded_by(program, 3)


KEPT = """
import tilewright
from tilewright import te
A = te.placeholder((64,), name="A")
B = te.compute((64,), lambda i: A[i] * 2.0, name="B")
s = te.create_schedule(B.op)
s[B].bind(B.op.axis[0], te.thread_axis("threadIdx.x"))
kernel = tilewright.build(s, [A, B], "cuda -arch=sm_80")
"""


@pytest.mark.needs_nvrtc
def test_a_kernel_for_cuda_from_the_cache_loads_no_code_generator(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    show = f"{KEPT}\nimport sys\nprint(*{{'.'.join(m.split('.')[:3]) for m in sys.modules}})"
    run = [sys.executable, "-c", show]
    cold, kept = (
        set(subprocess.run(run, capture_output=True, text=True, check=True).stdout.split())
        for _ in range(2)
    )
    assert "tilewright.codegen.cuda" in cold
    assert not {"tilewright.codegen.cuda", "tilewright.lower.pipeline", "numpy", "cuda"} & kept
