"""One file lists every pass: those of lowering, and those that code generators run."""

import ast
from functools import partial
from pathlib import Path

import tilewright
from tilewright.lower import pipeline

LOWER = Path(tilewright.__file__).parent / "lower"
KINDS = ("cuda", "opencl", "llvm", "c", "sim")


def listed():
    """The names of the passes in the lists."""
    passes = [*pipeline.FORM, *pipeline.LOOPS, pipeline.SPLIT, *pipeline.KERNEL]
    for kind in KINDS:
        passes += pipeline.backend(kind)
    return {(p.func if isinstance(p, partial) else p).__name__ for p in passes}


def is_pass(path):
    """Whether a file has a function of its name that takes a ``Func`` first and returns one."""
    for f in ast.parse(path.read_text()).body:
        if isinstance(f, ast.FunctionDef) and f.name == path.stem and f.args.args:
            takes, gives = (ast.unparse(x) for x in (f.args.args[0].annotation, f.returns))
            return takes == "Func" and gives in ("Func", "Module")
    return False


def test_every_file_with_a_pass_is_in_the_list():
    made = {path.stem for path in LOWER.glob("*/*.py") if is_pass(path)}
    assert len(made) > 25
    assert made <= listed()


def test_code_generators_define_no_passes():
    assert not [path for path in LOWER.parent.glob("codegen/**/*.py") if is_pass(path)]
