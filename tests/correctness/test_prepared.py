"""What depends on constants alone is computed once, ahead of a kernel's calls."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright import te
from tilewright.graph import Graph, Input, Node
from tilewright.graph.executor import Executor
from tilewright.graph.value import Constant
from tilewright.ir.buffer import Buffer
from tilewright.ir.stmt import Store
from tilewright.ir.visit import statements
from tilewright.lower.loops.split_kernels import buffers_of
from tilewright.runtime.build import forget
from tilewright.select.algorithm import Scheduled
from tilewright.target import Target
from tilewright.topi.operators.conv import Conv
from tilewright.topi.operators.gemm import Gemm
from tilewright.topi.templates import TEMPLATES

#: A template that packs the filter, with a target and the type of the image.
PACKING = {
    "cpu.byte_dots": ("llvm", "int8"),
    "cpu.flat": ("llvm", "float32"),
    "opencl.packing": ("opencl", "float32"),
}


def whole_numbers(rng, shape, dtype):
    return rng.integers(0 if dtype[0] == "u" else -4, 5, shape).astype(dtype)


def kernels_of(template, constants):
    kind, dtype = PACKING[template]
    problem = Conv.of_shapes((1, 32, 9, 9), (32, 32, 3, 3), dtype=dtype, padding=(1, 1, 1, 1))
    target, found = Target.parse(kind), TEMPLATES[template]
    config = found.candidates(problem, target)[0]
    if template == "cpu.flat":  # the one of its declarations that packs
        config = next(c for c in found.candidates(problem, target) if c.across)
    given = problem.replace(constants=constants)
    return problem, Scheduled(found).kernel(given, config, target)


@pytest.mark.parametrize(
    "template",
    [pytest.param(n, marks=pytest.mark.needs_opencl if "opencl" in n else ()) for n in PACKING],
)
def test_a_filter_is_packed_once_for_all_calls(template):
    problem, whole = kernels_of(template, ())
    _, kernel = kernels_of(template, ("filter",))
    rng = np.random.default_rng(3)
    x, w = (whole_numbers(rng, t.shape, t.dtype) for t in problem.inputs().values())
    wanted, found = (np.zeros(problem.result.shape, problem.result.dtype) for _ in range(2))
    whole(x, w, wanted)
    packed = kernel.prepare(w)
    names = [p.name for p in kernel.signature.params]
    assert names[0] == "data"
    assert "filter" not in names
    for _ in range(2):
        found[:] = 0
        kernel(x, *packed, found)
        assert (found == wanted).all()
    # What calls run reads the packed filter, and neither the filter nor writes what is packed.
    read = {b.name for f in kernel.module.funcs for b in buffers_of(f.body)}
    written = {s.buffer.name for f in kernel.module.funcs for s in statements(f.body)
               if isinstance(s, Store)}  # fmt: skip
    made = {p.name for p in kernel.preparation.kernel.signature.params[1:]}
    assert made <= read - written
    assert "filter" not in read


def a_program():
    """``y = x + doubled(w) * doubled(v)`` of which ``doubled`` are stages of their own."""
    x, w, v = (te.placeholder((16,), "float32", name=n) for n in "xwv")
    twice = te.compute((16,), lambda i: w[15 - i] * 2.0, name="twice")
    thrice = te.compute((16,), lambda i: v[15 - i] * twice[i], name="thrice")
    y = te.compute((16,), lambda i: x[i] + thrice[i] * w[i], name="y")
    return te.create_schedule(y.op), (x, w, v, y)


@pytest.mark.parametrize(("fixed", "made", "takes"), [
    ("wv", ["thrice"], ["x", "w", "thrice", "y"]),
    ("w", ["twice"], ["x", "w", "v", "twice", "y"]),
    ("v", [], ["x", "w", "v", "y"]),
    ("x", [], ["x", "w", "v", "y"]),
])  # fmt: skip
def test_only_what_depends_on_constants_alone_is_prepared(fixed, made, takes):
    s, args = a_program()
    names = {t.op.name: t for t in args}
    kernel = tilewright.build(s, args, "llvm", constants=[names[n] for n in fixed])
    assert [p.name for p in kernel.signature.params] == takes
    rng = np.random.default_rng(1)
    x, w, v = (whole_numbers(rng, 16, "float32") for _ in range(3))
    y = np.zeros(16, "float32")
    kernel(*kernel.prepared([x, w, v, y]))
    assert (y == x + v[::-1] * w[::-1] * 2 * w).all()
    ahead = kernel.preparation
    found = [] if ahead is None else ahead.kernel.signature.params[len(ahead.reads) :]
    assert [p.name for p in found if isinstance(p, Buffer)] == made


def test_a_kernel_from_a_file_or_the_cache_has_its_preparation(tmp_path):
    s, args = a_program()
    first = tilewright.build(s, args, "llvm", constants=[args[1]])
    first.save(tmp_path / "k.tw")
    forget()
    again = tilewright.build(s, args, "llvm", constants=[args[1]])
    for kernel in (again, tilewright.load(tmp_path / "k.tw")):
        assert kernel.preparation.places == first.preparation.places
        (made,) = kernel.prepare(np.arange(16, dtype="float32"))
        assert (made.numpy() == np.arange(16)[::-1] * 2).all()


def test_steps_of_a_graph_share_what_is_prepared_of_equal_constants():
    rng = np.random.default_rng(2)
    weight = whole_numbers(rng, (32, 32), "int8")
    x = Input("x", (4, 32), "int8")
    products = [Node("gemm", (x, Constant(weight.copy()))) for _ in range(2)]
    other = Node("gemm", (x, Constant(weight + 1)))
    graph = Graph("g", (x,), dict(zip("abc", (*products, other), strict=True)))
    executor = Executor(graph, Target.parse("llvm"))
    a, b, c = (step.arguments[1:-1] for step in executor.steps)
    assert a == b
    assert not set(a) & set(c)
    assert set(executor.constants) == {*a, *c}  # no weight as it was
    data = whole_numbers(rng, (4, 32), "int8")
    found = executor.run({"x": data})
    for name, w in (("a", weight), ("b", weight), ("c", weight + 1)):
        assert (found[name] == data.astype("int32") @ w.astype("int32")).all()


def test_a_problem_with_a_constant_has_a_name_of_its_own():
    plain = Gemm(m=2, n=3, k=4)
    fixed = plain.replace(constants=("b",))
    assert fixed.key != plain.key
    assert Gemm.from_dict(fixed.to_dict()) == fixed
    assert "constants" not in plain.to_dict()
    assert str(fixed) == f"{plain} of a constant b"
