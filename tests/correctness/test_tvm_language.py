"""What the language has under TVM's names beside te.compute: against NumPy, and its errors."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import tvm
from tilewright.tvm import te, tir

pytestmark = pytest.mark.usefixtures("plain_code")

rng = np.random.default_rng(0)


def real(*shape):
    return rng.uniform(0.5, 1.5, shape).astype("float32")


def run(s, args, arrays, *shapes):
    outs = [np.full(shape, 77, "float32") for shape in shapes]
    tvm.build(s, args, "llvm")(*arrays, *outs)
    return outs[0] if len(outs) == 1 else outs


def chain():
    A = te.placeholder((16, 16), name="A")
    B = te.compute((16, 16), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((16, 16), lambda i, j: B[i, j] * 2.0, name="C")
    return A, B, C, te.create_schedule(C.op)


def differences(function, arrays, k, step=1e-2):
    """The derivative of the sum of results by each element of array ``k``, by differences."""
    found = np.zeros_like(arrays[k], "float64")
    for place in np.ndindex(arrays[k].shape):
        ends = []
        for sign in (1, -1):
            moved = [a.astype("float64") for a in arrays]
            moved[k][place] += sign * step
            ends.append(function(*moved).sum())
        found[place] = (ends[0] - ends[1]) / (2 * step)
    return found


def _windows(a, w):
    return np.lib.stride_tricks.sliding_window_view(a, 3)[::2] @ w


@pytest.mark.parametrize(
    ("shapes", "declare", "function"),
    [
        ([(4,), (4,)], lambda a, b: a * b / (b + 1.0) - a, lambda a, b: a * b / (b + 1) - a),
        ([(3, 4)], lambda a: te.compute((4, 3), lambda i, j: te.exp(a[j, i]) * a[j, i]),
         lambda a: np.exp(a.T) * a.T),
        ([(4, 3), (3,)], lambda a, b: (lambda k: te.compute(
            (4,), lambda i: te.sum(a[i, k] * te.tanh(b[k]), axis=k)))(te.reduce_axis((0, 3))),
         lambda a, b: a @ np.tanh(b)),
        ([(9,), (3,)], lambda a, w: (lambda k: te.compute(
            (4,), lambda i: te.sum(a[i * 2 + k] * w[k], axis=k)))(te.reduce_axis((0, 3))),
         _windows),
        ([(4, 3)], lambda a: (lambda k: te.compute(
            (4,), lambda i: te.prod(a[i, k], axis=k)))(te.reduce_axis((0, 3))),
         lambda a: a.prod(1)),
        ([(4, 3)], lambda a: (lambda k: te.compute(
            (4,), lambda i: te.max(a[i, k], axis=k)))(te.reduce_axis((0, 3))),
         lambda a: a.max(1)),
        ([(6,)], lambda a: te.compute(
            (8,), lambda i: tir.if_then_else(tir.all(i >= 1, i < 7), te.sqrt(a[i - 1]), 0.0)),
         lambda a: np.pad(np.sqrt(a), 1)),
        ([(5,)], lambda a: te.compute((5,), lambda i: te.power(a[i], 3.0) + a[2]),
         lambda a: a**3 + a[2]),
    ],
)  # fmt: skip
def test_derivatives_are_those_of_differences(shapes, declare, function):
    inputs = [te.placeholder(shape, name=f"x{k}") for k, shape in enumerate(shapes)]
    out = declare(*inputs)
    head = te.compute(out.shape, lambda *i: tir.const(1.0, "float32"), name="head")
    arrays = [real(*shape) for shape in shapes]
    for k, found in enumerate(te.gradient(out, inputs, head)):
        made = run(te.create_schedule(found.op), [*inputs, found], arrays, shapes[k])
        np.testing.assert_allclose(made, differences(function, arrays, k), rtol=1e-2, atol=1e-2)
    whole = te.gradient(out, inputs[0])[0]
    assert whole.ndim == out.ndim + inputs[0].ndim


def test_what_has_no_derivative_is_said():
    A = te.placeholder((4,), "int32", name="A")
    B = te.compute((4,), lambda i: A[i] + 1, name="B")
    with pytest.raises(RuntimeError, match="is of int32"):
        te.gradient(B, [A])


def test_stages_of_a_group_are_attached_together():
    A, B, C, _ = chain()
    D = te.compute((16, 16), lambda i, j: C[i, j] - 3.0, name="D")
    s = te.create_schedule(D.op)
    group = s.create_group(outputs=C, inputs=A, include_inputs=True)
    assert s[B].group is s[A].group is group
    assert group.num_child_stages == 3
    group.compute_at(s[D], D.op.axis[0])
    assert s[B].attach_stage is s[C].attach_stage is group.attach_stage is s[D]
    a = real(16, 16)
    np.testing.assert_allclose(run(s, [A, D], [a], (16, 16)), (a + 1) * 2 - 3, rtol=1e-5)
    group.compute_root()
    assert s[B].attach_type == 1
    with pytest.raises(RuntimeError, match="nothing is computed between"):
        s.create_group(outputs=B, inputs=D)


@pytest.mark.parametrize(
    ("mapping", "expected"),
    [
        (lambda i, j: [j, i], lambda x: x.T),
        (lambda i, j: [i // 4, j, i % 4], lambda x: x.reshape(4, 4, 16).transpose(0, 2, 1)),
        (lambda i, j: [i * 16 + j], lambda x: x.reshape(-1)),
        (lambda i, j: [j // 8, te.AXIS_SEPARATOR, i * 8 + j % 8],
         lambda x: x.reshape(16, 2, 8).transpose(1, 0, 2).reshape(2, 128)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("which", ["input", "stage", "output"])
def test_a_tensor_in_another_layout(mapping, expected, which):
    A, B, C, s = chain()
    tensor = {"input": A, "stage": B, "output": C}[which]
    axes = s[tensor].transform_layout(mapping)
    a = real(16, 16)
    wanted = (a + 1) * 2
    if which == "input":
        a = np.ascontiguousarray(expected(a))
    if which == "output":
        wanted = expected(wanted)
        s[C].unroll(axes[-1])
    np.testing.assert_allclose(run(s, [A, C], [a], wanted.shape), wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        (lambda i, j: [i // 5, i % 5, j], "an extent of 16 becomes 20 places"),
        (lambda i, j: [i, i], "an old index is lost"),
        (lambda i, j: [i * 3 + j], "is no index made of digits"),
    ],
)
def test_a_layout_that_is_no_bijection_is_refused(mapping, said):
    _, B, _, s = chain()
    with pytest.raises(RuntimeError, match=said):
        s[B].transform_layout(mapping)


def test_a_cache_of_a_stage_that_was_split_has_its_loops_for_dimensions():
    A, _, C, s = chain()
    i, j = C.op.axis
    jo, ji = s[C].split(j, factor=4)
    s[C].reorder(jo, i, ji)
    cache = s.cache_write(C, "global")
    assert [e.value for e in cache.shape] == [4, 16, 4]
    a = real(16, 16)
    np.testing.assert_allclose(run(s, [A, C], [a], (16, 16)), (a + 1) * 2, rtol=1e-6)


def test_a_stage_stays_in_the_loop_that_is_split_later():
    A, B, C, s = chain()
    s[B].compute_at(s[C], C.op.axis[1])
    s[C].split(C.op.axis[1], factor=4)
    a = real(16, 16)
    np.testing.assert_allclose(run(s, [A, C], [a], (16, 16)), (a + 1) * 2, rtol=1e-6)


def test_a_stage_in_a_loop_may_be_an_argument():
    A, B, C, s = chain()
    s[B].compute_at(s[C], C.op.axis[0])
    a = real(16, 16)
    b, c = run(s, [A, B, C], [a], (16, 16), (16, 16))
    np.testing.assert_allclose(b, a + 1, rtol=1e-6)
    np.testing.assert_allclose(c, (a + 1) * 2, rtol=1e-6)


def test_arguments_may_be_left_out_of_what_is_looked_at():
    A, _, C, s = chain()
    assert "C" in str(tvm.lower(s, [A]))
    assert "A" in str(tvm.lower(s, [C]))


def test_a_buffer_with_strides_is_bound_to_an_argument():
    A, _, C, s = chain()
    own = tir.decl_buffer((16, 16), "float32", strides=[32, 1])
    whole, out = real(16, 32), np.zeros((16, 16), "float32")
    tvm.build(s, [A, C], "llvm", binds={A: own})(whole[:, :16], out)
    np.testing.assert_allclose(out, (whole[:, :16] + 1) * 2, rtol=1e-6)


def test_several_functions_in_a_module():
    A, _B, C, s = chain()
    mod = tvm.lower(s, [A, C], name="first")
    D = te.compute((16, 16), lambda i, j: A[i, j] - 1.0, name="D")
    mod.update(tvm.lower(te.create_schedule(D.op), [A, D], name="second"))
    assert list(mod.functions) == ["first", "second"]
    built = tvm.build(mod, target="llvm")
    a, out = real(16, 16), np.zeros((16, 16), "float32")
    built["second"](a, out)
    np.testing.assert_allclose(out, a - 1, rtol=1e-6)
    built["first"](a, out)
    np.testing.assert_allclose(out, (a + 1) * 2, rtol=1e-6)


def test_a_context_says_what_is_done_to_loops():
    A, _, C, s = chain()
    s[C].vectorize(C.op.axis[1])
    assert "vectorized" in str(tvm.lower(s, [A, C]))
    with tvm.transform.PassContext(config={"tir.disable_vectorize": True}):
        assert "vectorized" not in str(tvm.lower(s, [A, C]))
        tvm.build(s, [A, C], "llvm")
    with tvm.build_config(auto_unroll_max_step=8):
        tvm.build(s, [A, C], "llvm")
    assert "vectorized" in str(tvm.lower(s, [A, C]))
    with pytest.raises(tvm.TVMError, match="passes are fixed"):
        with tvm.transform.PassContext(config={"no.such": 1}):
            pass


def test_llvm_ir_of_ones_own_is_called():
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: tir.call_extern("float32", "test_twice", A[i]), name="B")
    s = te.create_schedule(B.op)
    ir = "define float @test_twice(float %x) {\n  %y = fadd float %x, %x\n  ret float %y\n}\n"
    s[B].pragma(B.op.axis[0], "import_llvm", ir)
    a = real(8)
    np.testing.assert_allclose(run(s, [A, B], [a], 8), a + a)
    s = te.create_schedule(B.op)
    s[B].pragma(B.op.axis[0], "import_llvm", "no IR")
    with pytest.raises(RuntimeError, match="no LLVM IR"):
        tvm.build(s, [A, B], "llvm")


def test_code_for_another_machine_is_made_and_refuses_to_run():
    A, _, C, s = chain()
    func = tvm.build(s, [A, C], "llvm -mtriple=aarch64-linux-gnu -mattr=+neon")
    assert "fadd" in func.get_source("asm")
    with pytest.raises(RuntimeError, match="cannot run here"):
        func(real(16, 16), real(16, 16))


def test_tags_of_a_scope():
    with te.tag_scope(tag="conv"):
        _, B, C, _ = chain()
    assert B.op.tag == C.op.tag == "conv"
    with pytest.raises(RuntimeError, match="within tag_scope"), te.tag_scope("a"):
        with te.tag_scope("b"):
            pass


@pytest.mark.parametrize(
    ("scan", "said"),
    [
        (lambda X, st, i, u: te.scan(i, u, [st, st]), "are to be as many"),
        (lambda X, st, i, u: te.scan(i, u, X * 2.0), "is to be a te.placeholder"),
        (lambda X, st, i, u: te.scan(X, u, st), "is to be made by a te.compute"),
        (lambda X, st, i, u: te.scan(i, u, te.placeholder((8, 5))), "are to have one shape"),
    ],
)
def test_a_scan_that_does_not_fit_is_refused(scan, said):
    X, st = te.placeholder((8, 4), name="X"), te.placeholder((8, 4), name="state")
    first = te.compute((1, 4), lambda _, i: X[0, i], name="first")
    step = te.compute((8, 4), lambda t, i: st[t - 1, i] + X[t, i], name="step")
    with pytest.raises(RuntimeError, match=said):
        scan(X, st, first, step)


@pytest.mark.parametrize("wrong", ["parallel", "order"])
def test_the_steps_of_a_scan_stay_in_order(wrong):
    X, st = te.placeholder((8, 4), name="X"), te.placeholder((8, 4), name="state")
    first = te.compute((1, 4), lambda _, i: X[0, i], name="first")
    step = te.compute((8, 4), lambda t, i: st[t - 1, i] + X[t, i], name="step")
    out = te.scan(first, step, st)
    s = te.create_schedule(out.op)
    if wrong == "parallel":
        s[out].parallel(out.op.scan_axis)
    else:
        s[out].reorder(out.op.axis[1], out.op.scan_axis)
    with pytest.raises(tvm.TVMError, match="steps of a scan"):
        tvm.build(s, [X, out], "llvm")


def test_a_cached_sum_may_combine_by_what_its_element_says():
    X = te.placeholder((10,), name="X")

    def element(n):
        k = te.reduce_axis((0, n), "k")
        combine = te.comm_reducer(
            lambda x, y: te.max(x + y, n.astype("float32")),
            lambda dtype: tvm.tir.Select(n > 1, te.const(0, dtype), n.astype(dtype)),
            name="bounded",
        )
        return combine(X[k], axis=k)

    Y = te.compute((10,), element, name="Y")
    s = te.create_schedule(Y.op)
    s.cache_write(Y, "local")
    x = np.random.default_rng(0).uniform(size=10).astype("float32")
    y = tvm.nd.empty((10,))
    tvm.build(s, [X, Y])(tvm.nd.array(x), y)
    for n, found in enumerate(y.numpy()):
        expected = 0.0 if n > 1 else n
        for v in x[:n]:
            expected = max(expected + v, n)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
