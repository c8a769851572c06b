"""Code for CPUs as LLVM translates it without optimising: compiled in a tenth of the time.

For tests of what operators and models mean. That kernels mean the same when they are optimised is
what tests of schedules, of templates and of random programs state.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tilewright.runtime import cache, llvm_host


@functools.cache
def _translator(cpu: llvm_host.Processor, slp: bool) -> tuple[Any, None]:
    target = llvm_host.binding().Target.from_triple(cpu.triple)
    machine = target.create_target_machine(
        cpu=cpu.cpu, features=cpu.flags, opt=0, reloc="pic", codemodel="default"
    )
    return machine, None


def use_plain_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the end of the test; the kernels are kept under names of their own."""
    tag = f"{cache.compiler_tag()}-plain"
    monkeypatch.setattr(llvm_host, "_optimizer", _translator)
    monkeypatch.setattr(cache, "compiler_tag", lambda: tag)
