"""The auto-scheduler's names: declarations without a template are tuned, and what is found runs."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import tvm
from tilewright.tvm import auto_scheduler, autotvm, te, topi
from tilewright.tvm.sketch import schedule_by

pytestmark = pytest.mark.usefixtures("plain_code")

rng = np.random.default_rng(0)


@auto_scheduler.register_workload
def matmul_add(n, k, m):
    A, B = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    C = te.placeholder((n, m), name="C")
    r = te.reduce_axis((0, k), name="r")
    product = te.compute((n, m), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="product")
    return [A, B, C, te.compute((n, m), lambda i, j: product[i, j] + C[i, j], name="out")]


@auto_scheduler.register_workload
def conv_relu(channels, filters, size):
    data = te.placeholder((1, channels, size, size), name="data")
    kernel = te.placeholder((filters, channels, 3, 3), name="kernel")
    bias = te.placeholder((1, filters, 1, 1), name="bias")
    conv = topi.nn.conv2d_nchw(data, kernel, 1, 1, 1)
    return [data, kernel, bias, topi.nn.relu(conv + bias)]


@auto_scheduler.register_workload
def softmax(n, m):
    x = te.placeholder((n, m), name="x")
    return [x, topi.nn.softmax(x)]


@auto_scheduler.register_workload
def rows(n, m):
    x = te.placeholder((n, m), name="x")
    return [x, topi.nn.relu(topi.sum(x, axis=1) - 1.0)]


@auto_scheduler.register_workload
def total(n):
    x = te.placeholder((n,), name="x")
    return [x, topi.sum(x)]


@auto_scheduler.register_workload
def two_products(n, k):
    A, B = te.placeholder((n, k), name="A"), te.placeholder((n, k), name="B")
    return [A, B, topi.add(topi.nn.dense(A, B), topi.nn.dense(B, A))]


@auto_scheduler.register_workload
def gathered(n, m):
    x, at = te.placeholder((n, m), name="x"), te.placeholder((5, 7), "int32", name="at")
    r = te.reduce_axis((0, 7), name="r")
    return [x, at, te.compute((5, m), lambda i, j: te.sum(x[at[i, r] % n, j], axis=r), name="y")]


def _windows(x):
    padded = np.pad(x[0], ((0, 0), (1, 1), (1, 1)))
    return np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))


CASES = {
    "product": (matmul_add, (16, 24, 32), lambda a, b, c: a @ b + c),
    "odd product": (matmul_add, (17, 5, 19), lambda a, b, c: a @ b + c),
    "convolution": (
        conv_relu, (3, 8, 6),
        lambda x, k, b: np.maximum(np.einsum("chwyx,fcyx->fhw", _windows(x), k) + b[0], 0)[None],
    ),
    "softmax": (softmax, (6, 40), lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True)),
    "long rows": (rows, (3, 700), lambda x: np.maximum(x.sum(1) - 1, 0)),
    "sum of all": (total, (3000,), lambda x: x.sum()),
    "two products": (two_products, (8, 16), lambda a, b: a @ b.T + b @ a.T),
    "gather": (gathered, (9, 8), lambda x, at: x[at % 9].sum(1)),
}  # fmt: skip


def inputs(tensors):
    made = []
    for t in tensors[:-1]:
        shape = [int(d) for d in t.shape]
        drawn = rng.random(shape) if t.dtype == "float32" else rng.integers(0, 99, shape)
        made.append(drawn.astype(str(t.dtype)))
    return made


@pytest.mark.parametrize(
    "target", ["llvm", "sim", pytest.param("cuda", marks=pytest.mark.needs_cuda)]
)
@pytest.mark.parametrize("name", CASES)
def test_any_candidate_computes_what_is_declared(name, target):
    func, args, reference = CASES[name]
    task = auto_scheduler.SearchTask(func=func, args=args, target=target)._task
    space = task.config_space
    for index in space.sample(4, rng):
        s, tensors = task.instantiate(space.get(int(index)))
        arrays = inputs(tensors)
        device = tvm.device(target)
        out = tvm.nd.empty([int(d) for d in tensors[-1].shape], device=device)
        tvm.build(s, tensors, target)(*(tvm.nd.array(a, device) for a in arrays), out)
        wanted = reference(*(a.astype("float64") if a.dtype == "float32" else a for a in arrays))
        np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_the_map_of_a_result_is_computed_with_it():
    task = auto_scheduler.SearchTask(func=conv_relu, args=(3, 8, 6), target="llvm")
    knobs = {name.split(".")[1] for name in task._task.config_space.space_map}
    assert knobs == {"pad_temp", "conv2d_nchw"}


def test_a_task_is_tuned_and_its_best_schedule_runs(tmp_path):
    task = auto_scheduler.SearchTask(func=matmul_add, args=(16, 24, 32), target="llvm")
    assert "out(i, j) = product[i, j] + C[i, j]" in str(task.compute_dag)
    assert task.compute_dag.flop_ct == 16 * 32 * (2 * 24 + 1)
    log = str(tmp_path / "log.json")
    runner = auto_scheduler.LocalRPCMeasureContext(repeat=1, number=1).runner
    options = auto_scheduler.TuningOptions(
        2, runner=runner, verbose=0, measure_callbacks=[auto_scheduler.RecordToFile(log)]
    )
    policy = auto_scheduler.SketchPolicy(task, auto_scheduler.XGBModel())
    task.tune(options, search_policy=policy)
    s, tensors = task.apply_best(log)
    a, b, c = inputs(tensors)
    out = tvm.nd.empty((16, 32))
    tvm.build(s, tensors)(*map(tvm.nd.array, (a, b, c)), out)
    np.testing.assert_allclose(out.numpy(), a @ b + c, rtol=1e-4)
    assert "product" in task.print_best(log)
    assert "define" in task.print_best(log, print_mode="source")
    other = auto_scheduler.SearchTask(func=matmul_add, args=(16, 24, 16), target="llvm")
    with pytest.raises(tvm.TVMError, match="has no schedule of .* that worked"):
        other.apply_best(log)


def test_errors_say_what_to_use(tmp_path):
    with pytest.raises(tvm.TVMError, match="list is not registered"):
        auto_scheduler.SearchTask(func=list, args=(), target="llvm")
    old = tmp_path / "ansor.json"
    old.write_text('{"i": [["[\\"matmul\\", 1]", "llvm"], [[], []]], "r": [[1], 0, 1, 1]}\n')
    task = auto_scheduler.SearchTask(func=matmul_add, args=(16, 24, 32), target="llvm")
    with pytest.raises(tvm.TVMError, match="steps of its own: tune again"):
        task.apply_best(str(old))
    with pytest.raises(AttributeError, match="--problems FILE"):
        auto_scheduler.extract_tasks
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1.0, name="B")
    with pytest.raises(tvm.TVMError, match="not made by te.compute of constant extents"):
        schedule_by(autotvm.get_config(), [A, B])
