"""Machine code for processors that this machine need not have."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Any

import pytest

from tilewright.codegen.llvm.module import generate
from tilewright.lower.pipeline import lower
from tilewright.runtime.llvm_host import Processor, assembly, processor
from tilewright.schedule import Schedule

#: Features of a processor with AMX, in LLVM's names.
SAPPHIRE_RAPIDS = (
    "avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512cd", "avx512bf16",
    "amx-tile", "amx-bf16", "amx-int8",
)  # fmt: skip

x86_only = pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"), reason="LLVM compiles for x86 there"
)


def machine_code(s: Schedule, args: Sequence[Any], named: Sequence[str]) -> str:
    """The assembly of a schedule for a processor with these features."""
    flags = ",".join(f"+{n}" for n in named)
    cpu = Processor(processor("").triple, "sapphirerapids", flags, frozenset(named))
    return assembly(generate(lower(s, args), 1, cpu.features, cpu.vector_bits), cpu)
