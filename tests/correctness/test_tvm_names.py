"""TVM's names: programs of 2017 and of 2024 run with no change but their import."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

from tilewright import ir, tvm
from tilewright.ir.errors import LanguageError, LoweringError
from tilewright.tvm import te, tir, topi

pytestmark = pytest.mark.usefixtures("plain_code")


def add_one(n=8):
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1.0, name="B")
    return te.create_schedule(B.op), [A, B]


def test_a_program_of_2017():
    n = tvm.var("n")
    A = tvm.placeholder((n,), name="A")
    B = tvm.compute((n,), lambda i: tvm.max(A[i], tvm.const(0.0)), name="B")
    s = tvm.create_schedule(B.op)
    ctx = tvm.context("llvm", 0)
    assert ctx.exist
    func = tvm.build(s, [A, B], "llvm", name="relu")
    a = tvm.nd.array(np.arange(-3, 4).astype("float32"), ctx)
    b = tvm.nd.array(np.full(7, np.nan, "float32"), ctx)
    func(a, b)
    tvm.testing.assert_allclose(b.asnumpy(), [0, 0, 0, 0, 1, 2, 3])
    evaluator = func.time_evaluator(func.entry_name, ctx, number=3)
    assert 0 < evaluator(a, b).mean < 1


def test_a_program_of_2024():
    s, args = add_one()
    dev = tvm.cpu()
    with tvm.target.Target("llvm"), tvm.transform.PassContext(opt_level=3):
        func = tvm.build(s, args)
    a, b = tvm.nd.array(np.ones(8, "float32"), dev), tvm.nd.empty((8,), "float32", dev)
    func(a, b)
    dev.sync()
    np.testing.assert_array_equal(b.numpy(), 2)
    timing = func.time_evaluator(func.entry_name, dev, number=2, repeat=3)(a, b)
    assert len(timing.results) == 3
    assert func["main"] is func


def test_numpy_arrays_are_passed_as_they_are():
    s, args = add_one()
    out = np.full(8, np.nan, "float32")
    tvm.build(s, args, "llvm")(np.zeros(8, "float32"), out)
    np.testing.assert_array_equal(out, 1)


def test_a_lowered_module_prints_and_builds():
    s, args = add_one()
    mod = tvm.lower(s, args, name="add", simple_mode=True)
    assert isinstance(mod, tvm.IRModule)
    assert str(mod).startswith('def add(A: T.Buffer((8,), "float32")')
    assert mod.script() == str(mod)
    assert mod.text("2017").startswith("produce B {")
    assert list(mod.functions) == ["add"]
    assert mod["add"].name == "add"
    out = np.full(8, np.nan, "float32")
    tvm.build(mod, target="llvm")(np.zeros(8, "float32"), out)
    np.testing.assert_array_equal(out, 1)


def test_a_kernel_is_saved_and_loaded(tmp_path):
    s, args = add_one()
    path = str(tmp_path / "add.tw")
    tvm.build(s, args, "llvm").export_library(path)
    out = np.full(8, np.nan, "float32")
    loaded = tvm.runtime.load_module(path)
    loaded.import_module(tvm.runtime.load_module(path))
    loaded(np.zeros(8, "float32"), out)
    np.testing.assert_array_equal(out, 1)


def test_the_source_of_a_gpu_kernel_is_its_imported_module():
    s, args = add_one()
    s[args[1]].bind(args[1].op.axis[0], te.thread_axis("threadIdx.x"))
    func = tvm.build(s, args, "sim")
    assert "threadIdx_x" in func.imported_modules[0].get_source()
    s, args = add_one()
    assert tvm.build(s, args, "llvm").imported_modules == []


def test_targets():
    target = tvm.target.Target("cuda -arch=sm_90a")
    assert target.kind == "cuda"
    assert target.arch == "sm_90a"
    assert isinstance(target, tvm.target.Target)
    assert tvm.target.Target.current() is None
    with target:
        assert tvm.target.Target.current() is target
    assert tvm.target.create("llvm").kind == tvm.target.llvm().kind == "llvm"
    assert tvm.target.mali().kind == "opencl"


def test_devices():
    assert tvm.cpu() == tvm.device("llvm", 0) == tvm.context("cpu") == tvm.device("sim")
    assert tvm.gpu(1) == tvm.cuda(1) == tvm.device("cuda", 1)
    assert tvm.cl() == tvm.opencl(0) == tvm.device("opencl -device=mali")
    assert tvm.cpu().exist is True
    assert tvm.cuda(99).exist is False
    assert tvm.runtime.enabled("llvm")


# -- the language ------------------------------------------------------------------------------


def index_of(fcompute):
    B = fcompute()
    (load,) = [e for e in ir.visit.exprs(B.op.body[0]) if isinstance(e, ir.expr.Load)]
    return repr(load.indices[0])


def test_division_under_the_names_of_2017_is_cs():
    A = tvm.placeholder((8,), name="A")
    old = index_of(lambda: tvm.compute((16,), lambda i: A[(i - 3) / 2 + (i - 3) % 2]))
    assert old == "T.truncdiv(i - 3, 2) + T.truncmod(i - 3, 2)"
    new = index_of(lambda: te.compute((16,), lambda i: A[(i - 3) // 2 + (i - 3) % 2]))
    assert new == "(i - 3) // 2 + (i - 3) % 2"
    with pytest.raises(LanguageError, match="use // "):
        te.compute((16,), lambda i: A[i / 2])


def test_division_under_the_names_of_2017_runs_as_cs():
    A = tvm.placeholder((9,), name="A", dtype="int32")
    B = tvm.compute((9,), lambda i: A[i] / 3, name="B")
    C = tvm.compute((9,), lambda i: A[i] % 3, name="C")
    a, b, c = np.arange(-4, 5, dtype="int32"), np.full(9, 99, "int32"), np.full(9, 99, "int32")
    tvm.build(tvm.create_schedule([B.op, C.op]), [A, B, C], "llvm")(a, b, c)
    np.testing.assert_array_equal(b, [-1, -1, 0, 0, 0, 0, 0, 1, 1])
    np.testing.assert_array_equal(c, a - 3 * b)


def test_expressions_under_tir():
    x = tir.Var("x", "int32")
    assert isinstance(x, tir.Var)
    assert isinstance(tir.const(1, "int32"), tir.IntImm)
    assert isinstance(tir.IntImm("int64", 3), tvm.expr.IntImm)
    assert isinstance(x + 1, tir.Add)
    assert isinstance(tir.Select(x > 0, x, 0), tir.Select)
    assert tir.IntImm("int64", 3).dtype.bits == 64
    assert repr(tvm.tir.if_then_else(tir.all(x >= 0, x < 8), x, 0)) == (
        "T.if_then_else(x >= 0 and x < 8, x, 0)"
    )


def test_everything_in_te_is_in_tvm_too():
    for name in ("sum", "max", "min", "reduce_axis", "thread_axis", "exp", "all", "any", "cast"):
        assert getattr(tvm, name) is getattr(te, name)
    assert tvm.topi is topi
    assert isinstance(add_one()[1][0], tvm.tensor.Tensor)
    assert isinstance(add_one()[1][1].op, te.tensor.ComputeOp)
    assert isinstance(add_one()[0], tvm.schedule.Schedule)


def test_tags_let_a_traversal_reach_the_convolution():
    """As the schedules of TVM's articles walk from the output to what they schedule."""
    x, w, v = (te.placeholder(shape) for shape in ((1, 4, 8, 8), (4, 1, 3, 3), (4,)))
    conv = topi.nn.depthwise_conv2d_nchw(x, w, 1, "SAME", 1)
    op, met = topi.nn.relu(topi.nn.scale_shift_nchw(conv, v, v)).op, []
    while topi.tag.is_broadcast(op.tag):
        met.append(op.name)
        op = op.input_tensors[0].op
    assert (met, op.tag) == (["Relu", "ScaleShift"], "depthwise_conv2d_nchw")
    assert "pad" in op.input_tensors[0].op.tag


# -- names that are not here -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("tvm.relay.var", "te.compute"),
        ("tvm.auto_scheduler.extract_tasks", "tilewright tune"),
        ("te.comput", "compute"),
        ("te.crate_schedule", "create_schedule"),
        ("tvm.nd.arry", "array"),
        ("tvm.relay.frontend", "tilewright.load"),
        ("tvm.tir.Schedule", "te.create_schedule"),
        ("tvm.ir_pass", "tilewright lower"),
        ("tvm.autotvm.tunr", "dir.tvm.autotvm. lists"),
        ("tvm.topy", "topi"),
    ],
)
def test_a_name_that_is_missing_says_what_to_use(name, instead):
    with pytest.raises(AttributeError, match=instead):
        eval(name, {"tvm": tvm, "te": te})


def test_options_that_do_nothing_here_are_refused():
    s, args = add_one()
    with pytest.raises(LoweringError, match="pragma"):
        with tvm.transform.PassContext(config={"tir.add_lower_pass": [(1, None)]}):
            pass
    with pytest.raises(KeyError, match="it has 'main'"):
        tvm.build(s, args, "llvm")["other"]
    with pytest.raises(ValueError, match="script"):
        tvm.lower(s, args).text("2019")


def test_a_reduction_has_the_names_of_tvm():
    A, k = te.placeholder((4, 4), name="A"), te.reduce_axis((0, 4))
    found = te.compute((4,), lambda i: te.sum(A[i, k], axis=k)).op.body[0]
    assert found.axis == (k,)
    assert found.combiner.name == "sum"
    x = te.var("x")
    assert tvm.arith.Analyzer().simplify(x - x + 3).value == 3


def test_a_buffer_is_passed_to_c_by_its_access_ptr():
    A = te.placeholder((4,), name="A")
    B = te.extern(
        (4,), [A],
        lambda i, o: tir.call_extern("int32", "f", i[0].access_ptr("r"), o[0].access_ptr("w")),
    )  # fmt: skip
    assert "f(" in str(tvm.lower(te.create_schedule(B.op), [A, B]))


def test_an_array_is_shared_through_dlpack():
    x = tvm.nd.array(np.arange(4, dtype="float32"))
    shared = np.from_dlpack(x)
    x.copyfrom(np.full(4, 7, "float32"))
    np.testing.assert_array_equal(shared, 7)


def test_the_modules_of_autotvm_are_imported_as_in_tvm():
    from tilewright.tvm.autotvm.record import load_from_file
    from tilewright.tvm.autotvm.task.space import ConfigSpace
    from tilewright.tvm.autotvm.tuner import XGBTuner

    import tilewright.tvm.autotvm as imported

    assert imported is tvm.autotvm
    assert XGBTuner is tvm.autotvm.tuner.XGBTuner
    assert ConfigSpace is tvm.autotvm.ConfigSpace
    assert load_from_file is tvm.autotvm.record.load_from_file
    with pytest.raises(AttributeError, match="--problems FILE"):
        tvm.autotvm.task.extract_from_program
    with pytest.raises(tvm.TVMError, match="leave it out"):
        tvm.autotvm.LocalBuilder(build_func="ndk")


@pytest.mark.parametrize(
    ("module", "words"),
    [("relay.testing", r"tilewright\.load"), ("contrib.download", "read the file"),
     ("driver.tvmc", "tilewright run"), ("tir.exprs", "did you mean expr")],
)  # fmt: skip
def test_an_import_of_a_module_that_is_missing_says_what_to_use(module, words):
    with pytest.raises(ModuleNotFoundError, match=words):
        importlib.import_module(f"tilewright.tvm.{module}")
    head, _, name = module.rpartition(".")
    with pytest.raises(ImportError, match=words):
        exec(f"from tilewright.tvm.{head} import {name}")
