"""Lowered programs as TVM's names read them, and its helpers for tests."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import tvm
from tilewright.tvm import te, tir, topi

pytest_generate_tests = tvm.testing.plugin.pytest_generate_tests
rows, twice = tvm.testing.parameters((1, 2), (3, 6))
kind = tvm.testing.parameter(by_dict={"one": 1, "two": 2})


def copy(shape=(2, 3, 4)):
    A = te.placeholder(shape, "int32", name="A")
    B = te.compute(shape, lambda *i: A(*i), name="B")
    return A, B, te.create_schedule(B.op)


def nodes(body, cls):
    found = []
    tir.stmt_functor.post_order_visit(body, lambda n: isinstance(n, cls) and found.append(n))
    return found


def test_lowered_loops_go_over_offsets_without_the_names_of_stages():
    A, B, s = copy()
    func = tvm.lower(s, [A, B])["main"]
    i, j, k = (loop.loop_var for loop in reversed(nodes(func.body, tir.For)))
    (store,), (load,) = nodes(func.body, tir.BufferStore), nodes(func.body, tir.BufferLoad)
    tvm.ir.assert_structural_equal([i * 12 + j * 4 + k], store.indices)
    tvm.ir.assert_structural_equal(load.indices, store.indices)
    assert isinstance(func.body, tir.stmt.For)
    assert [p.shape for p in func.params] == [A.shape, B.shape]


def test_separated_indices_are_dimensions_of_the_lowered_buffer():
    A, B, s = copy()
    s[B].transform_layout(lambda i, j, k: [k, j, te.AXIS_SEPARATOR, i])
    body = tvm.lower(s, [A, B])["main"].body
    (store,) = nodes(body, tir.BufferStore)
    a, b, c = (loop.loop_var for loop in reversed(nodes(body, tir.For)))
    tvm.ir.assert_structural_equal([a * 3 + b, c], store.indices)
    assert [e.value for e in store.buffer.shape] == [12, 2]
    given = np.arange(24, dtype="int32").reshape(2, 3, 4)
    out = tvm.nd.empty((4, 3, 2), "int32")
    tvm.build(s, [A, B], "llvm")(tvm.nd.array(given), out)
    np.testing.assert_array_equal(out.numpy(), given.transpose(2, 1, 0))


def test_guards_stand_where_they_are_decided_first():
    A, B, s = copy((16, 16))
    s[B].split(B.op.axis[0], 5)
    body = tvm.lower(s, [A, B])["main"].body
    assert isinstance(body.body.body, tir.IfThenElse)
    assert isinstance(body.body.body.then_case, tir.For)
    assert body.body.body.else_case is None


def test_a_layout_may_name_its_last_indices():
    _, B, s = copy((4, 8))
    axes = s[B].transform_layout(lambda *outer, n: [*outer, n // 4, n % 4])
    assert [a.dom.extent.value for a in axes] == [4, 2, 4]


def test_a_layout_that_does_not_divide_a_small_extent_is_refused():
    _, B, s = copy((1, 3))
    with pytest.raises(tvm.TVMError, match="splits an extent of 3 by 4"):
        s[B].transform_layout(lambda i, c: [i, c // 4, c % 4])


def test_a_schedule_shows_what_it_says_under_the_names_of_tvm():
    _, B, s = copy((64, 64))
    x, y = B.op.axis
    xo, xi = s[B].split(x, 8)
    s[B].vectorize(y)
    s[B].unroll(xi)
    s[B].pragma(xo, "unroll_explicit", True)
    attrs, kinds = s[B].iter_var_attrs, te.schedule.IterVar
    assert attrs[y].iter_type == kinds.Vectorized
    assert attrs[xi].iter_type == kinds.Unrolled
    assert [key.value for key in attrs[xo].pragma_keys] == ["unroll_explicit"]
    assert isinstance(s[B].relations[0], te.schedule.Split)
    assert isinstance(xo, kinds)


def test_groups_of_a_schedule():
    x = te.compute((4, 4), lambda i, j: 1.0, name="x")
    y = te.compute((4, 4), lambda i, j: x[i, j] + 1, name="y")
    z = te.compute((4, 4), lambda i, j: y[i, j] + 2, name="z")
    s = te.create_schedule(z.op)
    inner = s.create_group(outputs=y, inputs=x)
    outer = s.create_group(outputs=y, inputs=x, include_inputs=True)
    assert set(s.groups) == {inner, outer}


def test_a_reducer_of_two_values_combines_them():
    m, n = te.var("m"), te.var("n")
    total = te.comm_reducer(lambda x, y: x + y, lambda t: tir.const(0, t))
    assert total(m, n) is m + n


def test_tag_scopes_do_not_nest():
    with te.tag_scope("a"), pytest.raises(ValueError, match="within tag_scope"), te.tag_scope("b"):
        pass


def test_a_call_takes_the_pointer_of_a_buffer():
    seen = []
    tvm.register_func("test.tir.seen", lambda a, b: seen.append(a.shape), override=True)
    A = te.placeholder((3,), name="A")
    B = te.extern((3,), [A], lambda i, o: tir.call_packed("test.tir.seen", i[0].data, o[0].data))
    tvm.build(te.create_schedule(B.op), [A, B], "llvm")(
        tvm.nd.array(np.zeros(3, "float32")), tvm.nd.empty((3,))
    )
    assert seen == [(3,)]


def test_targets_have_keys():
    assert "gpu" in tvm.target.Target("sim").keys
    assert "cpu" in tvm.target.Target("llvm").keys


def test_devices_that_only_tvm_has_do_not_exist():
    assert not tvm.device("metal", 0).exist
    assert not tvm.testing.device_enabled("vulkan")


def test_gradients_are_compared_with_differences():
    x, y = np.arange(3.0), np.ones(3)
    tvm.testing.check_numerical_grads(lambda x, y: x * x * y, [x, y], [2 * x, x * x])
    with pytest.raises(AssertionError, match="gradient of 'x'"):
        tvm.testing.check_numerical_grads(lambda x: x * x, {"x": x}, {"x": x})


def test_parameters_come_in_rows(rows, twice):
    assert twice == 2 * rows


def test_a_parameter_takes_its_values_in_turn(kind, request):
    assert request.node.name.endswith({1: "[one]", 2: "[two]"}[kind])


def test_what_topi_has_for_one_machine_alone_is_refused_when_called():
    function = topi.cuda.conv2d_hwnc_tensorcore
    with pytest.raises(
        tvm.TVMError, match=r"topi\.cuda\.conv2d_hwnc_tensorcore has no counterpart"
    ):
        function()
    assert topi.cuda.schedule_injective is topi.x86.schedule_injective


def test_outputs_may_be_arguments_of_the_program_too():
    A = te.placeholder((4,), name="A")
    B = te.compute((4,), lambda i: A[i] + 1, name="B")
    assert te.create_schedule([B.op, A.op]).outputs == [B.op]
    with pytest.raises(tvm.TVMError, match="is a placeholder"):
        te.create_schedule([A.op])


@pytest.mark.parametrize("method", ["nearest_neighbor", "linear", "cubic"])
@pytest.mark.parametrize("mode", ["align_corners", "half_pixel", "asymmetric"])
def test_resizing_agrees_with_the_product_of_weights(method, mode):
    A = te.placeholder((1, 2, 5, 6), name="A")
    B = topi.image.resize2d(
        A, (0.0,) * 4, (10, 9), method=method, coordinate_transformation_mode=mode,
        rounding_method="round" if mode == "align_corners" else "floor",
    )  # fmt: skip
    given = np.random.default_rng(0).uniform(size=(1, 2, 5, 6)).astype("float32")
    out = tvm.nd.empty((1, 2, 10, 9))
    tvm.build(topi.generic.schedule_injective([B]), [A, B], "llvm")(tvm.nd.array(given), out)
    expected = topi.testing.resize2d_python(given, (2, 1.5), "NCHW", method, mode)
    tvm.testing.assert_allclose(out.numpy(), expected, rtol=1e-4, atol=1e-4)


def test_programs_are_equal_but_for_the_names_of_what_they_declare():
    x, y, z = te.var("x"), te.var("y"), te.var("z")
    equal = tvm.ir.structural_equal
    assert equal(x + 2 * y, x + 2 * y)
    assert not equal(x + 2 * y, y + 2 * x)
    assert equal(x + 2 * y, y + 2 * x, map_free_vars=True)
    assert not equal(x + y, x + x, map_free_vars=True)
    assert not equal(x + x, x + z, map_free_vars=True)

    def program(name, factor, extent=8):
        A = te.placeholder((extent,), name=name)
        k = te.reduce_axis((0, extent), name + "k")
        B = te.compute((2,), lambda i: te.sum(A[k] * (i + factor), axis=k), name=name + "b")
        return tvm.lower(te.create_schedule(B.op), [A, B])["main"], B.op.body[0]

    (one, sums), (same, again), (other, _) = program("a", 3), program("c", 3), program("a", 4)
    assert equal(one, same)
    assert not equal(one, other)
    assert not equal(one, program("a", 3, 9)[0])
    assert not equal(sums, again)  # they read other inputs
    assert equal(sums, again, map_free_vars=True)
    with pytest.raises(ValueError, match="these differ"):
        tvm.ir.assert_structural_equal(one, other)
