"""The C functions beside compiled programs are kept as LLVM IR that names no machine."""

import re
import shutil

import pytest

from tilewright.codegen.llvm import host
from tilewright.codegen.llvm.host import renew
from tilewright.runtime import cuda_call
from tilewright.runtime.llvm_host import Processor, binding, compile_object

FILES = sorted(host.FOLDER.glob("*.c"))
PROGRAMS = [host.pool(posix=True), host.pool(posix=False), host.LAUNCH]
TRIPLES = (
    "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "arm64-apple-macosx11",
    "x86_64-pc-windows-msvc", "riscv64-unknown-linux-gnu",
)  # fmt: skip


@pytest.mark.parametrize("source", FILES, ids=lambda path: path.stem)
def test_the_llvm_ir_was_made_of_the_c_beside_it(source):
    head, text = source.with_suffix(".ll").read_text().split("\n", 1)
    assert renew.digest(source) in head, f"python -m {renew.__name__}"
    assert text.strip() == renew.portable(text).strip()


@pytest.mark.parametrize("source", FILES, ids=lambda path: path.stem)
def test_the_compiler_that_made_it_makes_it_again(source):
    head, text = source.with_suffix(".ll").read_text().split("\n", 1)
    clang = f"clang-{head.split()[-1]}"
    if shutil.which(clang) is None:
        pytest.skip(f"{clang} is not there")
    assert renew.compiled(source, clang) == text.lstrip()


@pytest.mark.parametrize("triple", TRIPLES)
@pytest.mark.parametrize("names", PROGRAMS, ids="-".join)
def test_every_machine_takes_the_same_llvm_ir(names, triple):
    llvm = binding()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        llvm.Target.from_triple(triple)
    except RuntimeError:
        pytest.skip(f"llvmlite does not compile for {triple}")
    cpu = Processor(triple, "", "", frozenset())
    # llvmlite has a parser for the assembly of its own machine alone, so the pause is left out
    assert compile_object(host.linked(names, ""), cpu)


def test_a_program_calls_functions_of_libraries_alone():
    for names in PROGRAMS:
        found = host.imports(host.linked(names, "x86_64"))
        assert found
        assert not [name for name in found if name.startswith("tw_")]


def test_the_plan_of_a_launch_has_the_numbers_of_the_c():
    text = (host.FOLDER / "launch.c").read_text()
    numbers = dict(re.findall(r"^ +([A-Z_]+) = (\d+),", text, re.MULTILINE))
    for name in ("MOST", "HEAD", "OF_PLAN", "ITSELF"):
        assert getattr(cuda_call, name) == int(numbers[name])
