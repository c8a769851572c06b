"""Code for other processors is refused where it would run, with the reason."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import pytest

from tilewright.ir.errors import TargetError
from tilewright.runtime import llvm_host


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="sets are those of x86")
def test_an_architecture_that_there_is_not() -> None:
    with pytest.raises(
        TargetError, match="unknown architecture 'avx1024'.*native, baseline, .*amx"
    ):
        llvm_host.processor("avx1024")


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="sets are those of x86")
def test_architectures_that_texts_advise_are_there() -> None:
    root = Path(__file__).parents[2]
    texts = [
        p.read_text() for folder in ("src", "docs") for p in (root / folder).rglob("*.[mp][dy]")
    ]
    named = {arch for text in texts for arch in re.findall(r"llvm -mcpu=([\w-]+)", text)}
    assert named
    for arch in named:
        llvm_host.processor(arch)


def test_what_a_processor_lacks_is_named() -> None:
    assert llvm_host.lacking([]) == ""
    assert llvm_host.lacking(llvm_host.host_features()) == ""
    assert llvm_host.lacking(["avx9000", "avx2000"]) == "this processor lacks avx2000, avx9000"


def test_tiles_that_the_system_withholds_are_told_from_those_that_are_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Processor:
        def get_host_cpu_features(self) -> dict[str, bool]:
            return {"avx2": True, "amx-tile": True, "amx-bf16": True, "amx-int8": False}

    monkeypatch.setattr(llvm_host, "host_features", lambda: frozenset({"avx2"}))
    monkeypatch.setattr(llvm_host, "binding", Processor)
    monkeypatch.setattr(llvm_host, "tiles_refused", lambda: "it says no")
    withheld = llvm_host.lacking(["avx2", "amx-tile", "amx-bf16"])
    assert withheld == "the system does not let this process use AMX's tiles: it says no"
    absent = llvm_host.lacking(["amx-tile", "amx-int8"])
    assert absent == "this processor lacks amx-int8, amx-tile"


@pytest.mark.skipif(
    platform.system() != "Linux" or platform.machine() != "x86_64",
    reason="Linux on x86-64 is asked",
)
def test_the_system_is_asked_for_tiles_and_answers() -> None:
    """Whatever it answers; a process that it did not let have them would be killed by them."""
    answer = llvm_host.tiles_refused.__wrapped__()
    assert answer == "" or answer.startswith("arch_prctl(ARCH_REQ_XCOMP_PERM) says ")
