"""CUDA programs compile to machine code without a GPU, and to the instructions they ask for."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys

import pytest
from tests.support.gpu_programs import PROGRAMS, buffer, kernel, ramp, vload

from tilewright.codegen import cuda_halves
from tilewright.codegen.cuda import generate
from tilewright.ir import ops
from tilewright.ir.errors import TargetError
from tilewright.ir.expr import Var
from tilewright.ir.stmt import Store
from tilewright.runtime import cuda
from tilewright.runtime.nvrtc import compile_cubin
from tilewright.runtime.sass import disassemble, opcodes
from tilewright.target import Target

pytestmark = pytest.mark.needs_nvrtc

#: Its sine and cosine keep their large arguments in a thread's memory.
STACK = ("functions",)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_compiles_without_spills(name: str, arch: str) -> None:
    made = generate(PROGRAMS[name]().module, arch)
    cubin = compile_cubin(made.text, arch)
    assert sorted(cubin.resources) == sorted(k.symbol for k in made.kernels)
    for found in cubin.resources.values():
        assert found.spills == 0
        assert found.stack == 0 or name in STACK
    plain = generate(PROGRAMS[name]().module, arch, aligned=False)
    if made.aligned:
        assert compile_cubin(plain.text, arch).data
    else:
        assert plain.text == made.text


def instructions(name: str) -> dict[str, int]:
    text = generate(PROGRAMS[name]().module, "sm_90a").text
    return opcodes(disassemble(compile_cubin(text, "sm_90a").data))


@pytest.mark.parametrize("name", ["copy", "copy_half_eight", "copy_bytes", "scale_shift_half"])
def test_vectors_move_16_bytes_at_once(name: str) -> None:
    found = instructions(name)
    assert found["LDG.E.128.CONSTANT"] == 1
    assert found["STG.E.128"] == 1


@pytest.mark.parametrize(("name", "kind"), [("half_fma", "HFMA2"), ("bfloat_fma", "BF16_V2")])
def test_two_lanes_of_16_bits_take_one_instruction(name: str, kind: str) -> None:
    found = instructions(name)
    assert sum(n for op, n in found.items() if op.startswith("HFMA2") and kind in op) >= 64
    assert not any(op.startswith("PRMT") for op in found)


@pytest.mark.parametrize(
    ("type", "arch"), [("float16", "sm_90a"), ("bfloat16", "sm_80"), ("bfloat16", "sm_90a")]
)
def test_conversions_of_16_bits_come_to_the_code_of_cudas_headers(
    type: str, arch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which are read where there is arithmetic, or a file has text of others beside."""
    x, y, tx = buffer("X", (256,), type), buffer("Y", (256,), type), Var.make("tx")
    at = ramp(tx * 8, 8)
    wide = ops.cast("float32x8", vload(x, at)) * ops.cast("float32", x[tx])
    made = kernel(
        "k", (x, y), Store(y, (at,), ops.cast(f"{type}x8", wide), None), threadIdx_x=(tx, 32)
    )
    own = generate(made, arch).text
    assert not own.startswith("#include")
    assert generate(made, arch, launcher="k").text.startswith("#include")
    monkeypatch.setattr(cuda_halves, "_TEXTS", {})
    theirs = generate(made, arch).text
    assert theirs.startswith("#include")
    assert compile_cubin(own, arch).data == compile_cubin(theirs, arch).data


def test_a_program_tells_its_source_its_code_and_what_it_takes() -> None:
    program = cuda.compile_module(
        PROGRAMS["shared_tile"]().module, Target.parse("cuda -arch=sm_90a")
    )
    assert "__syncthreads();" in program.source
    assert "BAR.SYNC" in program.assembly
    found = program.resources["transpose"]
    assert found.shared_memory == 4220
    assert found.registers
    again = cuda.compile_module(program.module, program.target, program.artifacts())
    assert again.source == program.source
    assert again.cubin == program.cubin
    assert again.resources == program.resources


def test_an_empty_log_leaves_the_bytes_that_python_shares_alone() -> None:
    compile_cubin('extern "C" __global__ void nothing() {}', "sm_80")
    with pytest.raises(TargetError):
        compile_cubin("nonsense", "sm_80")
    assert [bytes([n])[0] for n in range(256)] == list(range(256))


def test_ctrl_c_ends_waits_after_a_compilation() -> None:
    signal.siginterrupt(signal.SIGINT, True)
    compile_cubin('extern "C" __global__ void k(float* x) { *x = 1; }', "sm_90a")
    action = (ctypes.c_int * 64)()
    ctypes.CDLL(None).sigaction(signal.SIGINT, None, action)
    restarts, flags = 0x10000000, 34  # glibc's, behind a pointer and 128 bytes
    assert not action[flags] & restarts


def test_a_process_does_not_end_while_nvrtc_compiles() -> None:
    """NVRTC crashes where its library is torn down meanwhile."""
    text = """
import time
from tilewright.runtime import nvrtc
def compile_cubin(text, arch):
    time.sleep(0.2)
    print("compiled", flush=True)
nvrtc.compile_cubin, nvrtc.load_nvrtc = compile_cubin, lambda: None
nvrtc.begin("", "sm_90a")
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "compiled\n"
