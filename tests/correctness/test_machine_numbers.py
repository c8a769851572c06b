"""What a machine has and does stands in one file, ``target/devices.py``."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tilewright
from tilewright.target.devices import ARCHITECTURES, H200, REGISTERS, STATIC_SHARED, gpu, known
from tilewright.target.target import Target, sms

SOURCE = Path(tilewright.__file__).parent
#: The one place.
PLACE = SOURCE / "target" / "devices.py"
#: SMs, bytes of shared memory and their kilobytes, registers, cycles a microsecond.
NUMBERS = {
    *(n for g in ARCHITECTURES.values() for n in (g.sms, g.block_shared, g.shared) if n > 100),
    *(n // 1024 for n in (H200.block_shared, H200.shared)), STATIC_SHARED, REGISTERS,
    1700, 1750, 1755,
}  # fmt: skip
#: Bytes a microsecond that a memory moves; a million is a unit.
RATES = (1e5, 2e7)


def value(node: ast.AST) -> float | None:
    """A number, or a product of numbers."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left, right = value(node.left), value(node.right)
        return None if left is None or right is None else left * right
    return None


def strange(tree: ast.AST) -> list[str]:
    found = []
    for node in ast.walk(tree):
        number = value(node)
        rate = isinstance(number, float) and RATES[0] <= number <= RATES[1] and number != 1e6
        if number is not None and (rate or number in NUMBERS):
            found.append(f"line {node.lineno}: {number}")  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize(
    "package", ["topi", "select", "tune", "lower", "verify", "codegen", "schedule", "runtime"]
)
def test_no_number_of_a_machine_is_written_elsewhere(package):
    found = {}
    for path in sorted((SOURCE / package).rglob("*.py")):
        if "llvm" in path.parts:  # of a CPU, whose stack and floats have numbers of their own
            continue
        if lines := strange(ast.parse(path.read_text())):
            found[str(path.relative_to(SOURCE))] = lines
    assert not found


def test_such_numbers_are_found():
    for text in ("a = 132", "b = 227 * 1024", "c = 4.2e6", "d = f(65536)"):
        assert strange(ast.parse(text)), text
    assert not strange(ast.parse("microseconds = seconds * 1e6 + 1024"))


def test_an_unknown_architecture_is_like_the_nearest_older_one():
    assert known("sm_95") is H200
    assert sms("sm_95") == H200.sms
    assert known("sm_60") is None
    assert sms("sm_60") == 0
    assert Target.parse("cuda -arch=sm_95").limits.shared_memory == STATIC_SHARED


def test_devices_of_one_architecture_are_told_apart_by_their_names():
    h100 = gpu("sm_90a", "NVIDIA H100 80GB HBM3")
    assert gpu("sm_90a", "NVIDIA H200") == gpu("sm_90a") == gpu("sm_90a", "another") == H200
    assert h100.bandwidth < H200.bandwidth
    assert h100.sms == H200.sms
    assert gpu("sm_90", "NVIDIA H100 PCIe").sms < h100.sms
