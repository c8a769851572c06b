"""A kernel that is launched while the one before it ends reads nothing until that one has ended."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.support.gpu_programs import PROGRAMS

import tilewright
from tilewright import te
from tilewright.codegen.cuda import generate
from tilewright.ir.func import Module
from tilewright.lower.pipeline import lower
from tilewright.runtime import cuda
from tilewright.runtime.cuda_driver import Device
from tilewright.runtime.nvrtc import compile_cubin
from tilewright.runtime.sass import disassemble
from tilewright.select.algorithm import Scheduled
from tilewright.target import Target
from tilewright.topi import Conv, Gemm, Mlp
from tilewright.topi.pieces.mlp import MlpTile
from tilewright.topi.templates import TEMPLATES

#: What reads or writes global memory, and what waits for the kernel before.
MEMORY, WAIT = re.compile(r"(?<![.\w])(LDG|LDGSTS|STG|RED|ATOMG|UTMALDG|UBLKCP)\b"), "ACQBULK"


def strips(which: int) -> Module:
    """Products that begin with loads of each thread's own, from registers alone."""
    p = Conv(
        batch=1, channels=8, height=14, width=14, kernel_h=7, kernel_w=7, padding=3,
        dtype="float32", pass_="dgrad",
    )  # fmt: skip
    template, target = TEMPLATES["gpu.strips"], Target.parse("cuda -arch=sm_90a")
    config = list(template.candidates(p, target))[which]
    return lower(*template.scheduled(p, config), target)


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize(("which", "arch"), [(0, "sm_90a"), (2, "sm_120"), (4, "sm_90a")])
def test_no_access_is_moved_before_the_wait(which: int, arch: str) -> None:
    made = generate(strips(which), arch)
    code = disassemble(compile_cubin(made.text, arch).data)
    assert WAIT in code
    assert MEMORY.findall(code.partition(WAIT)[0]) == []
    assert MEMORY.findall(code) != []


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize(
    ("name", "aligned"),
    [("copy", False), ("copy_half_eight", True), ("shared_tile", True), ("two_kernels", False),
     ("symbolic_batch", True), ("warp_sum", False)],
)  # fmt: skip
def test_memory_of_programs_of_one_array_or_several_is_read_after_the_wait(
    name: str, aligned: bool
) -> None:
    module = PROGRAMS[name]().module
    code = disassemble(compile_cubin(generate(module, "sm_90a", aligned).text, "sm_90a").data)
    assert code.count(WAIT) == len(module.funcs)
    if len(module.funcs) == 1:
        assert MEMORY.findall(code.partition(WAIT)[0]) == []


def test_where_nothing_overlaps_nothing_waits() -> None:
    assert "follow_previous_kernel" not in generate(PROGRAMS["copy"]().module, "sm_80").text


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize(("arch", "waits"), [("sm_80", False), ("sm_90a", True)])
def test_only_code_that_waits_is_launched_before_its_turn(
    arch: str, waits: bool, aligned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it was written for an older device, and is compiled again for the one at hand."""
    loaded: list[tuple[bytes, bool]] = []

    def load(
        module: Any, place: Any, cubin: bytes, symbols: Any, shared: Any, overlaps: bool, *_: Any
    ) -> None:
        loaded.append((cubin, overlaps))

    monkeypatch.setattr(cuda, "device", lambda k: Device(k, "stand-in", 90, 0, 77, 77))
    monkeypatch.setattr(Device, "attribute", lambda self, name: 132)
    monkeypatch.setattr(cuda, "Loaded", load)
    program = cuda.compile_module(PROGRAMS["copy"]().module, Target.parse(f"cuda -arch={arch}"))
    program._load(0, aligned)
    ((cubin, overlaps),) = loaded
    assert overlaps is waits
    assert (WAIT in disassemble(cubin)) is waits


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize(
    ("capability", "count", "asks"), [(90, 132, True), (90, 114, False), (120, 170, False)]
)
def test_a_share_of_memory_is_asked_for_on_what_it_is_reckoned_for(
    capability: int, count: int, asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An SM of compute capability 12.0 has 100 KiB, less than half of Hopper's."""
    loaded: list[list[int]] = []

    def load(
        module: Any, place: Any, cubin: bytes, symbols: Any, shared: list[int], *_: Any
    ) -> None:
        loaded.append(shared)

    monkeypatch.setattr(cuda, "device", lambda k: Device(k, "stand-in", capability, 0, 77, 77))
    monkeypatch.setattr(Device, "attribute", lambda self, name: count)
    monkeypatch.setattr(cuda, "Loaded", load)
    program = cuda.compile_module(PROGRAMS["copy"]().module, Target.parse("cuda -arch=sm_90a"))
    program.asked_shared = [115 << 10]
    program._load(0, True)
    assert loaded == [program.asked_shared if asks else program.dynamic_shared]


def source(template: str, constants: tuple[str, ...], m: int = 64, producer: bool = False) -> str:
    """A product of matrices of which some are constants, by the first tile, of no cluster, whose
    threads all copy, or for which a ``producer`` does."""
    p = Gemm(m=m, n=1000, k=768, dtype="float16", transpose_b=True, constants=constants)
    target, found = Target.parse("cuda -arch=sm_90a"), TEMPLATES[template]
    tile = next(
        t for t in found.candidates(p, target)
        if bool(getattr(t, "staged", 0)) == producer and getattr(t, "boxes_to", 1) == 1
        and getattr(t, "filters_to", 1) == 1
    )  # fmt: skip
    made: str = Scheduled(found).kernel(p, tile, target).source
    return made


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("template", ["gpu.products_mma", "gpu.box_products"])
def test_constants_are_fetched_into_the_cache_before_the_wait(template: str) -> None:
    text = source(template, ("b",))
    assert f"fetch_ahead(b, {1000 * 768 * 2 // 128}u);" in text
    before, _, after = disassemble(compile_cubin(text, "sm_90a").data).partition(WAIT)
    assert re.search(r"CCTL\S*PF2", before)
    assert not re.search(r"CCTL\S*PF2", after)
    assert set(MEMORY.findall(before)) <= {"UTMALDG"}


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize(
    ("template", "m", "all_of_it"),
    [
        ("gpu.whole_boxes", 64, True),
        ("gpu.box_splits", 64, True),
        ("gpu.box_products", 4096, False),
    ],
)
def test_boxes_of_constants_alone_are_loaded_before_the_wait(
    template: str, m: int, all_of_it: bool
) -> None:
    before, _, after = source(template, ("b",), m).partition("if (!follow_previous_kernel())")
    assert "&b_map," in before
    assert "tma.load(" in before
    assert "tma.commit()" not in before.partition('extern "C"')[2]
    assert "&a_map, " not in before.partition("tma.announce(&a_map)")[2]
    assert ("&b_map," in after) is not all_of_it
    assert ("fetch_ahead(b" in before) is not all_of_it
    assert "&a_map," in after


@pytest.mark.needs_nvrtc
def test_a_producer_asks_for_boxes_of_constants_before_the_wait() -> None:
    text = source("gpu.box_products", ("b",), 4096, producer=True)
    consumer, producer = text.split("tma.consume();")[1].split("tma.produce();")
    before, _, after = producer.partition("if (!follow_previous_kernel())")
    assert "&b_map," in before
    assert "&a_map," not in before
    assert "&a_map," in after
    assert "tma.commit()" not in before
    assert "tma.commit()" not in consumer.partition("if (!follow_previous_kernel())")[0]


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("constants", [(), ("a",)])
def test_boxes_of_what_kernels_write_are_loaded_after_the_wait(constants: tuple[str, ...]) -> None:
    text = source("gpu.whole_boxes", constants)
    code = disassemble(compile_cubin(text, "sm_90a").data)
    found = MEMORY.findall(code.partition(WAIT)[0])
    assert set(found) == ({"UTMALDG"} if constants else set())
    before = text.partition("if (!follow_previous_kernel())")[0].partition('extern "C"')[2]
    assert "tma.load(" not in before or "&b_map, " not in before.partition("tma.load(")[2]


@pytest.mark.needs_nvrtc
def test_a_constant_that_is_packed_ahead_is_fetched_as_it_is_packed() -> None:
    w, x = te.placeholder((2048,), name="W"), te.placeholder((2048,), name="X")
    packed = te.compute((2048,), lambda i: w[2047 - i], name="Packed")
    y = te.compute((2048,), lambda i: x[i] * packed[i], name="Y")
    s = te.create_schedule(y.op)
    for tensor in (packed, y):
        block, thread = s[tensor].split(tensor.op.axis[0], factor=256)
        s[tensor].bind(block, te.thread_axis("blockIdx.x"))
        s[tensor].bind(thread, te.thread_axis("threadIdx.x"))
    kernel = tilewright.build(s, [x, w, y], "cuda -arch=sm_90a", constants=[w])
    assert re.findall(r"  fetch_ahead\((.*)\);", kernel.source) == ["Packed, 64u"]


@pytest.mark.needs_nvrtc
def test_boxes_behind_sums_that_begin_with_zeros_are_loaded_before_the_wait() -> None:
    p = Mlp(
        m=300, k=64, hidden=256, n=64, inner="bias+gelu", dtype="float16",
        constants=("b", "inner_bias", "c"),
    )  # fmt: skip
    target, found = Target.parse("cuda -arch=sm_90a"), TEMPLATES["gpu.mlp"]
    text = Scheduled(found).kernel(p, MlpTile(2, 64, 3), target).source
    before, _, after = text.partition("if (!follow_previous_kernel())")
    before = before.partition('extern "C"')[2]
    for name in ("b", "inner_bias", "c"):
        assert before.count(f"&{name}_map, ") == 2  # two steps are ahead
    assert "&a_map, " not in before
    assert after.index("&a_map, ") < after.index("Product[")
    code = disassemble(compile_cubin(text, "sm_90a").data).partition(WAIT)[0]
    assert set(MEMORY.findall(code)) == {"UTMALDG"}
