"""Article 000 runs as it is written: declaration, schedules, the search, fusion, printed programs.

What the article leaves out stands here, in functions whose names begin with ``complete``.
"""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np
import pytest
from tests.support.articles import (
    ARCHITECTURES,
    GPUS,
    Article,
    assert_same_program,
    depthwise,
    error,
    parse_2017,
    parse_script,
    spills,
)

from tilewright import tvm
from tilewright.tvm import topi

ARTICLE = Article("000")


def complete_shapes(
    batch: int, channels: int, height: int, width: int, k: int, multiplier: int, stride: int
) -> dict[str, Any]:
    """The names that the declaration takes for granted, for padding "SAME"."""
    pad = (k - 1) // 2
    return {
        "tvm": tvm,
        "topi": topi,
        "batch": batch,
        "in_channel": channels,
        "in_height": height,
        "in_width": width,
        "filter_height": k,
        "filter_width": k,
        "channel_multiplier": multiplier,
        "stride_h": stride,
        "stride_w": stride,
        "stride": [stride, stride],
        "padding": "SAME",
        "pad_top": pad,
        "pad_left": pad,
        "height_after_pad": height + 2 * pad,
        "width_after_pad": width + 2 * pad,
        "out_channel": channels * multiplier,
        "out_height": (height + 2 * pad - k) // stride + 1,
        "out_width": (width + 2 * pad - k) // stride + 1,
        "Input": tvm.placeholder((batch, channels, height, width), name="Input"),
        "Filter": tvm.placeholder((channels, multiplier, k, k), name="Filter"),
    }


def declared(shape: tuple[int, ...]) -> dict[str, Any]:
    names = complete_shapes(*shape)
    ARTICLE.run("declaration", names)
    names["DepthwiseConv2d"] = names["Output"]  # the later blocks call it by both names
    return names


def complete_reorder(names: dict[str, Any]) -> None:
    """Loops are fused only where they are neighbours; the article fuses bx1 and bx2."""
    stage = names["s"][names["Output"]]
    n, c, bx1, names["h_dim"], bx2, names["w_dim"] = stage.leaf_iter_vars[:6]
    stage.reorder(n, c, bx1, bx2, names["h_dim"], names["w_dim"])


def complete_shared(names: dict[str, Any], axis: Any, threads: tuple[int, int] | None) -> None:
    """Where the shared tiles are loaded, and by which threads."""
    s = names["s"]
    for tile in (names["IS"], names["FS"]):
        s[tile].compute_at(s[names["Output"]], axis)
        if threads is not None:
            rest, tx = s[tile].split(s[tile].fuse(*s[tile].op.axis), factor=threads[1])
            _, ty = s[tile].split(rest, factor=threads[0])
            s[tile].bind(ty, names["thread_y"])
            s[tile].bind(tx, names["thread_x"])


def channel_a_block(names: dict[str, Any]) -> None:
    """One block of one thread computes a channel."""
    for label in ("inline", "cache", "block axes", "channel a block"):
        ARTICLE.run(label, names)
    complete_shared(names, names["Output"].op.axis[1], None)


def channel_by_threads(names: dict[str, Any]) -> None:
    """One block of 8 by 8 threads computes a channel."""
    for label in ("inline", "cache", "block axes", "channel a block"):
        ARTICLE.run(label, names)
    names["h_dim"], names["w_dim"] = names["Output"].op.axis[2:]
    ARTICLE.run("threads", names)
    complete_shared(names, names["Output"].op.axis[1], (8, 8))


def tiles(names: dict[str, Any], threads: str, shared: bool = True) -> None:
    """Blocks of 32 by 32 outputs, divided among threads as the code ``threads`` says."""
    if shared:
        ARTICLE.run("cache", names)
    ARTICLE.run("block axes", names)
    ARTICLE.run("blocking", names)
    complete_reorder(names)
    ARTICLE.run("bind blocks", names)
    exec(threads, names)
    if shared:
        complete_shared(names, names["bx"], (names["num_thread_y"], names["num_thread_x"]))


def tiled(names: dict[str, Any], threads: str, shared: bool = True) -> None:
    """A schedule made of :func:`tiles`."""
    ARTICLE.run("inline", names)
    tiles(names, threads, shared)


#: How a block is divided among its threads.
THREADS, VTHREAD = ARTICLE.code["threads"], ARTICLE.code["vthread"]
ONE_VTHREAD = VTHREAD.replace("= 2\n", "= 1\n")  # "without vthread (set to 1)"

SCHEDULES = {
    "a channel a block": channel_a_block,
    "thread counts": channel_by_threads,
    "blocking": lambda names: tiled(names, THREADS),
    "vthread": lambda names: tiled(names, VTHREAD),
}

#: (batch, channels, height, width, taps, multiplier, stride)
SHAPES = [(1, 2, 9, 12, 3, 1, 1), (2, 1, 8, 7, 5, 2, 1), (1, 2, 11, 10, 3, 2, 2)]


def arguments(names: dict[str, Any]) -> list[Any]:
    inputs = [names[n] for n in ("Input", "Filter", "Scale", "Shift") if n in names]
    return [*inputs, names["Output"]]


def run(names: dict[str, Any], target: str) -> Any:
    """Build the schedule in ``names``, run it on fresh arrays, and hold it to NumPy."""
    inputs = arguments(names)[:-1]
    rng = np.random.default_rng(0)
    given = [rng.standard_normal([int(e) for e in t.shape], dtype="float32") for t in inputs]
    exact = depthwise(given[0], given[1], names["stride_h"])
    if len(given) > 2:
        scale, shift = (v.astype("float64")[:, None, None] for v in given[2:])
        exact = np.maximum(exact * scale + shift, 0)
    dev = tvm.device(target, 0)
    out = tvm.nd.array(np.full(exact.shape, np.nan, "float32"), dev)
    arrays = [*(tvm.nd.array(a, dev) for a in given), out]
    func = tvm.build(names["s"], arguments(names), target)
    func(*arrays)
    assert error(out.numpy(), exact) < 1e-5
    return func, arrays


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("inline", [False, True], ids=["padded", "inlined"])
def test_the_declaration_runs_on_a_cpu(shape, inline):
    names = declared(shape)
    ARTICLE.run("inline", names)
    if not inline:
        names["s"] = tvm.create_schedule(names["Output"].op)
    run(names, "llvm")


@pytest.mark.parametrize("target", GPUS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_is_right(schedule, shape, target):
    names = declared(shape)
    SCHEDULES[schedule](names)
    run(names, target)


@pytest.mark.parametrize("target", GPUS)
def test_tiles_that_do_not_divide_the_image(target):
    names = declared((1, 1, 33, 40, 3, 1, 1))
    tiled(names, VTHREAD)
    run(names, target)


def fused(shape: tuple[int, ...], threads: str, shared: bool = True) -> dict[str, Any]:
    """The article's fused operator, "scheduled the same way" as the convolution alone."""
    names = complete_shapes(*shape)
    for name in ("Scale", "Shift"):
        names[name] = tvm.placeholder((names["out_channel"],), name=name)
    ARTICLE.run("fused declaration", names)
    names["PaddedInput"] = names["DepthwiseConv2d"].op.input_tensors[0]
    names["schedule"] = lambda output: tiles(names, threads, shared)
    ARTICLE.run("inline", names)
    ARTICLE.run("fused schedule", names)
    return names


@pytest.mark.parametrize("target", GPUS)
@pytest.mark.parametrize("shape", [(1, 2, 9, 12, 3, 1, 1), (1, 1, 33, 8, 5, 2, 1)])
@pytest.mark.parametrize("threads", [THREADS, VTHREAD], ids=["threads", "vthread"])
def test_the_fused_operator_is_right(threads, shape, target):
    run(fused(shape, threads), target)


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("schedule", [*SCHEDULES, "fused"])
def test_no_schedule_spills_registers(schedule, arch):
    shape = (1, 256, 96, 96, 3, 1, 1)
    if schedule == "fused":
        names = fused(shape, VTHREAD)
    else:
        names = declared(shape)
        SCHEDULES[schedule](names)
    assert spills(names["s"], arguments(names), arch) == 0


def test_fusion_costs_no_kernel_and_no_memory():
    names = fused((1, 2, 9, 12, 3, 1, 1), THREADS)
    module = run(names, "sim")[0].kernel.module
    assert len(module.funcs) == 1
    assert module.workspaces == ()


def test_the_search_finds_the_fastest_thread_counts():
    names = declared((1, 1, 32, 32, 3, 1, 1))
    times = {}

    def do_schedule_as_usual(output, num_thread_y, num_thread_x):
        code = THREADS.replace("num_thread_y = 8", f"num_thread_y = {num_thread_y}")
        tiled(names, code.replace("num_thread_x = 8", f"num_thread_x = {num_thread_x}"))
        return names["s"]

    def test_depthwise_conv2d(output, schedule):
        func, arrays = run(names, "sim")
        evaluator = func.time_evaluator(func.entry_name, tvm.cpu(), number=1)
        cost = times[names["num_thread_y"], names["num_thread_x"]] = evaluator(*arrays).mean
        return cost

    names.update(
        inf=inf,
        all_possible_combinations=[(2, 2), (4, 8), (8, 32)],
        do_schedule_as_usual=do_schedule_as_usual,
        test_depthwise_conv2d=test_depthwise_conv2d,
    )
    code = ARTICLE.code["search"].replace("(..., ", "(Output, ")
    exec(
        code.replace(
            "    do_schedule_as_usual\n",
            "    schedule = do_schedule_as_usual(Output, num_thread_y, num_thread_x)\n",
        ),
        names,
    )
    assert list(times) == names["all_possible_combinations"]
    assert times[tuple(names["optimal_combination"])] == min(times.values())
    assert names["min_time_cost"] == min(times.values()) > 0


def printed(label: str) -> tvm.IRModule:
    """The program that the article prints: one image of 32 by 32, without shared memory."""
    shape = (1, 1, 32, 32, 3, 1, 1)
    if label == "fused":
        names = fused(shape, ONE_VTHREAD, shared=False)
    else:
        names = declared(shape)
        tiled(names, VTHREAD if label == "vthread" else ONE_VTHREAD, shared=False)
    return tvm.lower(names["s"], arguments(names), simple_mode=True)


@pytest.mark.parametrize("label", ARTICLE.ir)
def test_the_printed_program_is_the_articles(label, golden):
    mod = printed(label)
    wanted = parse_2017(ARTICLE.ir[label])
    assert_same_program(parse_2017(mod.text("2017")), wanted)
    assert_same_program(parse_script(str(mod)), wanted)
    golden(mod.text("2017"))


def test_a_select_that_reads_out_of_bounds_becomes_lazy():
    names = declared((1, 2, 9, 12, 3, 1, 1))
    s = tvm.create_schedule(names["Output"].op)
    text = tvm.lower(s, [names["Input"], names["Filter"], names["Output"]]).text("2017")
    assert "tvm_if_then_else(" in text
    assert "select" not in text.replace("tvm_if_then_else", "")


def test_the_names_of_the_axes_are_those_that_the_article_prints():
    for label, text in ARTICLE.ir.items():
        loops = [line.split(",")[0].strip() for line in text.splitlines() if "for (" in line]
        mine = printed(label).text("2017").splitlines()
        assert [x.split(",")[0].strip() for x in mine if "for (" in x] == loops
