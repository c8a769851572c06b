"""topi's functions of computed places, gradients, bits and sparse matrices, against NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tests.support.tvm_operators import close, compute, real, rng, run
from tilewright.tvm.contrib import sparse as csr

from tilewright import tvm
from tilewright.ir.errors import LanguageError
from tilewright.tvm import te, topi
from tilewright.tvm.topi import testing as ref

pytestmark = pytest.mark.usefixtures("plain_code")

# -- what is found -----------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["llvm", "sim"])
@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4)])
def test_argwhere_lists_the_elements_that_are_not_zero(shape, target):
    x = rng.integers(0, 2, shape).astype("int32")
    x.flat[0] = 1
    expected = np.argwhere(x)
    rows = np.zeros(expected.shape, "int32")
    assert (compute(topi.argwhere, rows, x, target=target)[0] == expected).all()


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("count", [1, 9, 40])
def test_unique_values_have_their_first_places_numbers_and_counts(ordered, count):
    x = rng.integers(0, 6, count).astype("int32")
    values, places, inverse, total, counts = compute(lambda t: topi.unique(t, ordered, True), x)
    u, first, back, times = np.unique(x, True, True, True)
    order = np.arange(len(u)) if ordered else np.argsort(first)
    n = len(u)
    assert total == n
    assert (values[:n] == u[order]).all()
    assert (places[:n] == first[order]).all()
    assert (counts[:n] == times[order]).all()
    assert (inverse == np.argsort(order)[back]).all()


def test_sums_over_no_axis_are_the_elements():
    x = real(3, 4)
    for name in ("sum", "prod", "max", "min"):
        assert (compute(lambda t, f=getattr(topi, name): f(t, axis=()), x)[0] == x).all()
    assert (compute(lambda t: topi.argmax(t, axis=()), x)[0] == 0).all()
    assert (compute(lambda t: topi.sum(t, axis=1), x > 0.5)[0] == (x > 0.5).any(1)).all()


# -- computed places ---------------------------------------------------------------------------


@pytest.mark.parametrize("multiply", [True, False])
@pytest.mark.parametrize("given", [(1, 2, 1, 1, 2), (3, 2, 2, 2, 3)])
def test_a_correlation(given, multiply):
    x, y = real(1, 3, 8, 8), real(1, 3, 8, 8)
    found = compute(lambda a, b: topi.nn.correlation_nchw(a, b, *given, multiply), x, y)[0]
    close(found, ref.correlation_nchw_python(x, y, *given, multiply))


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_a_deformable_convolution_without_offsets_is_a_convolution(layout):
    x, w, offset = real(1, 4, 6, 6), real(5, 4, 3, 3), real(1, 36, 6, 6, low=-2, high=2)
    images, kernel = (0, 2, 3, 1), (2, 3, 1, 0)
    args = (x, offset, w)
    if layout == "nhwc":
        args = (x.transpose(images), offset.transpose(images), w.transpose(kernel))
    function = getattr(topi.nn, f"deformable_conv2d_{layout}")
    reference = getattr(ref, f"deformable_conv2d_{layout}_python")
    found = compute(lambda a, o, k: function(a, o, k, 1, 1, 1, 2, 1, "float32"), *args)[0]
    close(found, reference(*args, 1, 1, 1, 2, 1))
    zero = np.zeros_like(offset)
    close(
        ref.deformable_conv2d_nchw_python(x, zero, w, 1, 1, 1, 2, 1),
        ref.conv2d_nchw_python(x, w, 1, 1),
    )


REGIONS = np.array([[0, 1, 1, 9, 7], [1, 0, 2, 3, 11], [0, 4, 4, 4.2, 4.1]], "float32")


@pytest.mark.parametrize("samples", [-1, 2])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions_aligned(samples, mode):
    x = real(2, 3, 8, 8)
    found = compute(
        lambda a, r: topi.vision.roi_align_nchw(a, r, 3, 0.7, mode, samples), x, REGIONS
    )
    close(found[0], ref.roi_align_nchw_python(x, REGIONS, 3, 0.7, samples, mode))
    last = x.transpose(0, 2, 3, 1)
    found = compute(
        lambda a, r: topi.vision.roi_align_nhwc(a, r, 3, 0.7, mode, samples), last, REGIONS
    )
    close(found[0], ref.roi_align_nhwc_python(last, REGIONS, 3, 0.7, samples, mode))


def test_regions_pooled():
    x = real(2, 3, 8, 8)
    found = compute(lambda a, r: topi.vision.roi_pool_nchw(a, r, 3, 0.7), x, REGIONS)[0]
    close(found, ref.roi_pool_nchw_python(x, REGIONS, 3, 0.7))


@pytest.mark.parametrize("method", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [True, False])
def test_samples_of_a_grid(method, mode, corners):
    x, grid = real(2, 2, 5, 4), real(2, 2, 3, 6, low=-1.9, high=1.9)
    found = compute(
        lambda a, g: topi.image.grid_sample(a, g, method, "NCHW", mode, corners), x, grid
    )[0]
    close(found, ref.grid_sample_python(x, grid, method, "NCHW", mode, corners))


# -- boxes -------------------------------------------------------------------------------------


def test_boxes_above_a_score_come_first():
    x = real(2, 5, 6, low=-1, high=1)
    counts, kept, numbers = compute(lambda t: topi.vision.get_valid_counts(t, 0.0, 0, 1), x)
    for b in range(2):
        own = np.flatnonzero((x[b, :, 1] > 0) & (x[b, :, 0] >= 0))
        assert counts[b] == len(own)
        assert (numbers[b, : len(own)] == own).all()
        assert (kept[b, : len(own)] == x[b, own]).all()
        assert (kept[b, len(own) :] == -1).all()
        assert (numbers[b, len(own) :] == -1).all()


def suppressed(boxes, count, threshold, by_class):
    """The numbers of the boxes that are kept, by score."""
    kept = []
    for i in np.argsort(-boxes[:count, 1], kind="stable"):
        overlaps = False
        for j in kept:
            sides = [
                max(0, min(boxes[i, k + 2], boxes[j, k + 2]) - max(boxes[i, k], boxes[j, k]))
                for k in (2, 3)
            ]
            areas = [(b[4] - b[2]) * (b[5] - b[3]) for b in (boxes[i], boxes[j])]
            common = sides[0] * sides[1]
            same = boxes[i, 0] == boxes[j, 0] or not by_class
            overlaps |= same and common >= threshold * (sum(areas) - common)
        if not overlaps:
            kept.append(i)
    return kept


@pytest.mark.parametrize("force", [True, False])
def test_boxes_that_overlap_a_better_one_are_suppressed(force):
    low = rng.uniform(0, 5, (12, 2))
    x = np.concatenate(
        [rng.integers(0, 2, (12, 1)), rng.permutation(12)[:, None] + 1.0, low,
         low + rng.uniform(1, 5, (12, 2))], 1,
    ).astype("float32")[None]  # fmt: skip
    count, numbers = np.array([10], "int32"), np.arange(12, dtype="int32")[None]
    places, total = compute(
        lambda t, c, i: topi.vision.non_max_suppression(t, c, i, -1, 0.3, force), x, count, numbers
    )
    expected = suppressed(x[0].astype("float64"), 10, 0.3, not force)
    assert 1 < len(expected) < 10
    assert total == len(expected)
    assert (places[0, : len(expected)] == expected).all()


def test_boxes_around_places():
    found = compute(
        lambda t: topi.vision.ssd.multibox_prior(t, (0.5, 0.25), (1, 2), clip=True),
        real(1, 1, 2, 3),
    )[0]
    size = [(0.5 * 2 / 3, 0.5), (0.25 * 2 / 3, 0.25), (0.5 * 2 / 3 * 2**0.5, 0.5 / 2**0.5)]
    expected = [
        [(x + 0.5) / 3 - w / 2, (y + 0.5) / 2 - h / 2, (x + 0.5) / 3 + w / 2, (y + 0.5) / 2 + h / 2]
        for y, x, (w, h) in itertools.product(range(2), range(3), size)
    ]
    close(found[0], np.clip(expected, 0, 1))


def test_reorg():
    x = real(1, 8, 4, 6)
    close(compute(lambda t: topi.vision.reorg(t, 2), x)[0], ref.reorg_python(x, 2))


# -- gradients ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("case", [(3, 2, (1, 1, 1, 1)), (2, 3, (0, 1, 2, 1)), (1, 2, (0, 0, 0, 0))])
def test_gradients_of_pools(kind, case):
    size, stride, padding = case
    x = real(1, 2, 9, 9)
    out = ref.poolnd_python(
        x, (size,) * 2, (stride,) * 2, (1, 1), padding[:2], padding[2:], kind
    ).shape
    grad = real(*out)
    for count in (True, False) if kind == "avg" else (True,):
        given = (size,) * 2, (stride,) * 2, padding, kind, False, count
        found = compute(lambda g, t, w=given: topi.nn.pool_grad(g, t, *w), grad, x)[0]
        close(found, ref.pool_grad_nchw(x, grad, *given))


def test_gradients_of_a_depthwise_convolution_are_adjoint_to_it():
    x, w, steps = real(1, 7, 7, 3), real(3, 3, 3, 2), (2, 2)
    out = ref.depthwise_conv2d_python_nhwc(x, w, steps, (1, 1))
    grad = real(*out.shape)
    padding = (1, 1)
    back = compute(
        lambda k, g: topi.nn.depthwise_conv2d_backward_input_nhwc(
            k, g, out.shape, x.shape, steps, padding
        ), w, grad,
    )[0]  # fmt: skip
    taps = compute(
        lambda t, g: topi.nn.depthwise_conv2d_backward_weight_nhwc(
            t, g, out.shape, w.shape, steps, padding
        ), x, grad,
    )[0]  # fmt: skip
    dx, dw = real(*x.shape), real(*w.shape)
    for found, moved in (
        ((back * dx).sum(), ref.depthwise_conv2d_python_nhwc(dx, w, steps, padding)),
        ((taps * dw).sum(), ref.depthwise_conv2d_python_nhwc(x, dw, steps, padding)),
    ):
        np.testing.assert_allclose(found, (moved.astype("float64") * grad).sum(), rtol=1e-4)


# -- bits, sparse matrices ---------------------------------------------------------------------


@pytest.mark.parametrize("unipolar", [True, False])
def test_products_of_few_bits(unipolar):
    x = rng.integers(0, 4, (3, 64)).astype("uint32")
    w = rng.integers(0, 2, (5, 64)).astype("uint32")
    signs = w.astype("int64") * 2 - 1 if unipolar else w
    found = compute(
        lambda a, b: topi.nn.bitserial_dense(a, b, 2, 1, "uint32", "int16", unipolar), x, w
    )[0]
    assert (found == x.astype("int64") @ signs.T).all()
    image = rng.integers(0, 4, (1, 32, 5, 5)).astype("uint32")
    taps = rng.integers(0, 2, (3, 32, 3, 3)).astype("uint32")
    expected = ref.conv2d_nchw_python(
        image.astype("int64"), taps.astype("int64") * (2 if unipolar else 1) - int(unipolar), 1, 1
    )
    given = 1, 1, 2, 1, "uint32", "int32", unipolar
    found = compute(lambda a, b: topi.nn.bitserial_conv2d_nchw(a, b, *given), image, taps)[0]
    assert (found == expected).all()
    found = compute(
        lambda a, b: topi.nn.bitserial_conv2d_nhwc(a, b, *given),
        image.transpose(0, 2, 3, 1), taps.transpose(2, 3, 1, 0),
    )[0]  # fmt: skip
    assert (found == expected.transpose(0, 2, 3, 1)).all()


def test_products_of_signs():
    x, w = (rng.integers(0, 2, (n, 64)).astype("float32") * 2 - 1 for n in (3, 5))
    packed = [compute(topi.nn.binarize_pack, v)[0] for v in (x, w)]
    assert (compute(topi.nn.binary_dense, *packed)[0] == x @ w.T).all()


def sparse(rows, columns):
    dense = real(rows, columns) * (rng.uniform(size=(rows, columns)) < 0.3)
    made = csr.array(dense)
    assert (made.numpy() == dense).all()
    return dense, [made.data.numpy(), made.indices.numpy(), made.indptr.numpy()]


def test_products_with_sparse_matrices():
    x = real(4, 7)
    w, rows = sparse(6, 7)
    close(compute(topi.nn.sparse_dense, x, *rows)[0], x @ w.T)
    close(compute(lambda *t: topi.nn.sparse_dense(*t, sparse_lhs=True), x, *rows)[0], w @ x.T)
    close(compute(topi.nn.sparse_add, real(6, 7) * 0, *rows)[0], w)
    square, rows = sparse(7, 7)
    found = compute(topi.nn.sparse_transpose, *rows)
    close(csr.array(tuple(map(tvm.nd.array, found)), shape=(7, 7)).numpy(), square.T)
    blocks = real(3, 2, 4)
    places = np.array([1, 0, 1], "int32"), np.array([0, 1, 3], "int32")
    whole = np.zeros((4, 8), "float32")
    for n, (row, column) in enumerate(((0, 1), (1, 0), (1, 1))):
        whole[2 * row : 2 * row + 2, 4 * column : 4 * column + 4] = blocks[n]
    x = real(3, 8)
    close(compute(topi.nn.sparse_dense, x, blocks, *places)[0], x @ whole.T)


def test_products_with_sparse_inputs_of_any_length():
    n = te.var("n")
    A = csr.placeholder((5, 7), nonzeros=n, dtype="float32", name="A")
    B, c = te.placeholder((7, 3), name="B"), te.placeholder((5,), name="c")
    a, rows = sparse(5, 7)
    b, more = real(7, 3), real(5)
    inputs = [A.data, A.indices, A.indptr, B, c]
    found = run(topi.sparse.csrmm(A, B, c), inputs, [*rows, b, more])[0]
    close(found, a @ b + more[:, None])
    w, bias = real(3, 7), real(3)
    W, d = te.placeholder((3, 7), name="W"), te.placeholder((3,), name="d")
    made = topi.sparse.dense(A, W, d)
    close(run(made, [A.data, A.indices, A.indptr, W, d], [*rows, w, bias])[0], a @ w.T + bias)


def test_a_kernel_of_fewer_parts_than_the_data_is_one_of_groups():
    x, w = real(1, 8, 5, 5), real(8, 4, 3, 3)
    parts = x.reshape(1, 4, 2, 5, 5).transpose(0, 1, 3, 4, 2)
    kernel = w.reshape(2, 4, 2, 2, 3, 3).transpose(0, 2, 4, 5, 3, 1)
    found = compute(
        lambda a, k: topi.nn.conv2d_NCHWc(a, k, 1, 1, 1, "NCHW2c", "NCHW4c"), parts, kernel
    )[0]
    expected = ref.conv2d_nchw_python(x, w, 1, 1, groups=2)
    close(found.transpose(0, 1, 4, 2, 3).reshape(expected.shape), expected)


# -- helpers, and what is refused --------------------------------------------------------------


def test_helpers_of_shapes():
    utils = topi.utils
    assert utils.ravel_index([1, 2], [3, 4]) == 6
    assert [utils.simplify(v) for v in utils.unravel_index(te.const(6), [3, 4])] == [1, 2]
    assert utils.get_max_power2_factor(24) == 8
    assert utils.get_max_power2_factor(24, 4) == 4
    assert utils.get_shape((1, 2, 3, 4), "NCHW", "NHWC") == (1, 3, 4, 2)
    assert utils.nchw_pack_layout("NCHW2n4c")
    assert not utils.nchw_pack_layout("NCHW4c")
    assert utils.nchw_xc_layout("NCHW4c")
    assert not utils.nchw_xc_layout("NCHW")
    assert utils.is_empty_shape((3, 0))
    assert utils.is_dynamic_shape((te.var("n"), 3))
    for b, e, s in ((1, 7, 2), (8, 1, -3)):
        taken = list(range(b, e, s))
        for i in range(10):
            inside = utils.simplify(utils.within_index(b, e, s, te.const(i)))
            assert bool(inside) == (i in taken)
            if i in taken:
                place = utils.simplify(utils.make_idx(b, e, s, 10, te.const(i)))
                assert place == taken.index(i)


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda x: topi.vision.proposal(x), "has no counterpart"),
        (lambda x: topi.nn._get_workload(x), "has no counterpart"),
        (lambda x: topi.nn.binarize_pack(x), "do not fill words of 32 bits"),
        (lambda x: topi.nn.bitpack(x, 1, 1, 1, "uint8"), "do not fill words of 8 bits"),
        (lambda x: topi.nn.pool2d(x, 2, 2, 1, 0, "max", layout="NCHW4h"), "Unsupported layout"),
        (lambda x: topi.nn.pool_grad(x, x, 2, 2, 0, "sum"), "neither 'max' nor 'avg'"),
        (lambda x: topi.image.grid_sample(x, x, padding_mode="wrap"), "none of zeros, border"),
        (lambda x: topi.vision.roi_align_nchw(x, x, 2, 1.0, "sum"), "neither 'avg' nor 'max'"),
        (lambda x: topi.nn.sparse_conv2d(x, x, x, x, kernel_size=3), "one element a channel"),
    ],
)
def test_what_an_operator_cannot_do_is_said(use, said):
    with pytest.raises(LanguageError, match=said):
        use(te.placeholder((1, 3, 4, 4), name="x"))


def test_variants_of_an_operator_for_one_algorithm_are_the_operator():
    assert topi.x86.dense_nopack is topi.nn.dense
    assert topi.cuda.conv2d_nchw_winograd is topi.nn.conv2d_nchw
    assert topi.arm_cpu.mprofile.schedule_any is topi.generic.schedule_dense
