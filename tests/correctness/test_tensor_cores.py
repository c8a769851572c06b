"""Products on tensor cores are what they are declared as, in sim and as machine code."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.support.changed import lacking
from tests.support.narrow import from_bits, to_bits
from tests.support.tensor_programs import (
    MMA,
    by_warpgroups,
    from_registers,
    staged,
    through_shared,
    transposed,
)

import tilewright
from tilewright.ir.ops import const
from tilewright.ir.stmt import Queue, Sync
from tilewright.ir.visit import allocated, statements
from tilewright.lower.pipeline import lower
from tilewright.runtime.ndarray import array
from tilewright.runtime.sass import opcodes
from tilewright.runtime.sim import simulate
from tilewright.target.instructions import copy_async, wgmma

PROGRAMS = {
    **{f"registers-{t}": partial(from_registers, t) for t in MMA},
    "registers-3-stages": partial(from_registers, "float16", k=160, stages=3),
    "shared": through_shared,
    "shared-4-stages": partial(through_shared, k=192, stages=4),
    "transposed": transposed,
    "warpgroups": by_warpgroups,
    "warpgroups-bfloat16": partial(by_warpgroups, "bfloat16"),
    "warpgroups-tf32": partial(by_warpgroups, "tf32"),
    "warpgroups-3-stages": partial(by_warpgroups, k=192, columns=64, stages=3),
    **{f"staged-{a}{b}": partial(staged, a, b) for a in "ki" for b in "kj"},
    "staged-padded": partial(staged, "i", "j", k=100, m=128, n=32, stages=4),
    "staged-by-pairs": partial(staged, "k", "j", "bfloat16", k=100, together=2),
    "staged-at-once": partial(staged, "k", "k", stages=0),
}
#: By program what has to be among the instructions of its machine code.
MEANT = {
    "registers-float16": ("HMMA.16816.F32", "LDG.E.128.CONSTANT"),
    "registers-bfloat16": ("HMMA.16816.F32.BF16", "LDG.E.128.CONSTANT"),
    "registers-float32": ("HMMA.1688.F32.TF32", "LDG.E.128.CONSTANT"),
    "registers-int8": ("IMMA.16832.S8.S8", "LDG.E.128.CONSTANT"),
    "registers-uint8": ("IMMA.16832.U8.U8", "LDG.E.128.CONSTANT"),
    "registers-3-stages": ("HMMA.16816.F32", "LDG.E.128.CONSTANT"),
    "shared": ("HMMA.16816.F32", "LDSM.16.M88.4"),
    "shared-4-stages": ("HMMA.16816.F32", "LDSM.16.M88.4"),
    "transposed": ("HMMA.16816.F32", "LDSM.16.MT88.4"),
    "warpgroups": ("HGMMA.64x32x16.F32", "WARPGROUP.ARRIVE", "WARPGROUP.DEPBAR"),
    "warpgroups-bfloat16": ("HGMMA.64x32x16.F32.BF16",),
    "warpgroups-tf32": ("HGMMA.64x32x8.F32.TF32",),
    "warpgroups-3-stages": ("HGMMA.64x64x16.F32",),
    **{f"staged-{a}{b}": ("HGMMA.64x64x16.F32", "LDGSTS.E.BYPASS.128") for a in "ki" for b in "kj"},
    "staged-padded": ("HGMMA.64x32x16.F32", "LDGSTS.E.BYPASS.128"),
    "staged-by-pairs": ("HGMMA.64x64x16.F32.BF16", "LDGSTS.E"),
    "staged-at-once": ("HGMMA.64x64x16.F32", "LDGSTS.E.BYPASS.128"),
}


def operands(name: str, args: Any, integers: bool) -> tuple[list[Any], np.ndarray]:
    """Random operands and their exact product."""
    rng = np.random.default_rng(0)
    made = []
    for tensor in args[:2]:
        shape = [int(extent) for extent in tensor.shape]
        low = 0 if tensor.dtype.kind == "uint" else -4
        whole = integers or tensor.dtype.is_int
        values = rng.integers(low, 5, shape) if whole else rng.standard_normal(shape)
        kind = str(tensor.dtype)
        made.append(
            to_bits(values.astype("float32")) if kind == "bfloat16" else values.astype(kind)
        )
    a, b = (
        np.asarray(from_bits(x) if str(tensor.dtype) == "bfloat16" else x, np.float64)
        for x, tensor in zip(made, args, strict=False)
    )
    rows, columns = (int(extent) for extent in args[2].shape)
    as_it_lies = name == "transposed" or len(b) != columns
    return made, (a if len(a) == rows else a.T) @ (b if as_it_lies else b.T)


@pytest.mark.parametrize("name", PROGRAMS)
def test_sums_of_small_integers_are_exact_in_sim(name: str) -> None:
    schedule, args = PROGRAMS[name]()
    made, exact = operands(name, args, integers=True)
    result = np.full(exact.shape, 77, str(args[2].dtype))
    report = tilewright.build(schedule, list(args), "sim").simulate(*made, result)
    assert report.ok, report
    np.testing.assert_array_equal(result, exact)


@pytest.mark.parametrize("name", ["registers-float16", "registers-bfloat16", "shared"])
def test_sums_of_floats_are_added_in_float32(name: str) -> None:
    schedule, args = PROGRAMS[name]()
    made, exact = operands(name, args, integers=False)
    result = np.full(exact.shape, np.nan, "float32")
    tilewright.build(schedule, list(args), "sim")(*made, result)
    assert np.linalg.norm(result - exact) < 1e-6 * np.linalg.norm(exact)


@pytest.mark.parametrize("name", PROGRAMS)
def test_elements_of_a_register_lie_side_by_side(name: str) -> None:
    """Also where the axis of which a register holds pairs is not the last."""
    schedule, args = PROGRAMS[name]()
    module = lower(schedule, list(args), "cuda -arch=sm_90a")
    held = [b for f in module.funcs for b in allocated(f.body) if b.distribution is not None]
    assert held
    for buffer in held:
        d = buffer.distribution
        assert d is not None
        assert 4 >> len(d.packed) == buffer.dtype.bytes, buffer
        for number, (dimension, bit) in enumerate(d.packed):
            index = [const(0)] * len(d.shape)
            index[dimension] = const(1 << bit)
            assert d.slot(index) == const(1 << number), buffer


@pytest.mark.spread
@pytest.mark.needs_nvrtc
@pytest.mark.parametrize(
    ("name", "arch"),
    [
        (name, arch)
        for number, name in enumerate(PROGRAMS)
        for arch in ("sm_90a", ("sm_80", "sm_120")[number % 2])
        if arch == "sm_90a" or not name.startswith(("warpgroups", "staged"))  # which has wgmma
    ],
)
def test_machine_code_has_the_instructions_meant_and_no_spills(name: str, arch: str) -> None:
    schedule, args = PROGRAMS[name]()
    program = tilewright.build(schedule, list(args), f"cuda -arch={arch}").program
    for used in program.resources.values():
        assert used.spills == 0
    found = opcodes(program.assembly)
    for meant in MEANT[name]:
        assert any(op.startswith(meant) for op in found), (meant, sorted(found))


def waits(module: Any) -> list[Queue]:
    return [s for f in module.funcs for s in statements(f.body) if isinstance(s, Queue)]


@pytest.mark.parametrize("name", ["warpgroups-3-stages", "staged-kj"])
def test_sim_misses_every_wait_and_every_commit(name: str) -> None:
    schedule, args = PROGRAMS[name]()
    module = lower(schedule, list(args), "cuda -arch=sm_90a")
    made, exact = operands(name, args, integers=True)
    result = np.full(exact.shape, 77, "float32")
    assert simulate(module, [*made, result]).ok
    found = [s for s in waits(module) if s.action in ("wait", "commit")]
    assert {s.action for s in found} == {"wait", "commit"}
    for s in found:
        report = simulate(lacking(module, s), [*made, result])
        assert {f.kind for f in report.findings} == {"unfinished instruction"}, s


@pytest.mark.parametrize("name", ["staged-kk", "staged-padded"])
def test_sim_misses_every_barrier_behind_copies_in_the_background(name: str) -> None:
    schedule, args = PROGRAMS[name]()
    module = lower(schedule, list(args), "cuda -arch=sm_90a")
    made, exact = operands(name, args, integers=True)
    result = np.full(exact.shape, 77, "float32")
    for s in [s for f in module.funcs for s in statements(f.body) if isinstance(s, Sync)]:
        report = simulate(lacking(module, s), [*made, result])
        assert "race" in {f.kind for f in report.findings}, s


@pytest.mark.needs_cuda
@pytest.mark.parametrize("name", PROGRAMS)
def test_sums_of_small_integers_are_exact_on_a_gpu(name: str) -> None:
    schedule, args = PROGRAMS[name]()
    made, exact = operands(name, args, integers=True)
    there = [array(x, "cuda", str(t.dtype)) for x, t in zip(made, args, strict=False)]
    result = array(np.full(exact.shape, 77, str(args[2].dtype)), "cuda")
    tilewright.build(schedule, list(args), "cuda")(*there, result)
    np.testing.assert_array_equal(result.numpy(), exact)


def test_an_instruction_is_one_however_it_is_asked_for() -> None:
    assert wgmma(64, "float16", "i", "j") is wgmma(64, right="j", element="float16", left="i")
    assert wgmma(64) is wgmma(64, "float16")
    assert copy_async(4) is copy_async(count=4, element="float32")
