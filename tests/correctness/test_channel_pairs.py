"""Channels-last convolutions in 16 bits, by products of pairs of channels: right at every edge."""

import re

import numpy as np
import pytest
from tests.support.depthwise import TOLERANCE, run
from tests.support.hopper import skip_unless_hopper

import tilewright
from tilewright.ir.errors import LanguageError
from tilewright.ir.visit import allocated
from tilewright.topi import Conv
from tilewright.topi.pieces.pair_cuts import pair_cut
from tilewright.topi.pieces.strip_tiles import PairTile, SparsePairTile
from tilewright.topi.templates import TEMPLATES, templates

SM_90A = tilewright.Target.parse("cuda -arch=sm_90a")
TEMPLATE, SPARSE = TEMPLATES["gpu.channel_pairs"], TEMPLATES["gpu.sparse_pairs"]


def problem(image, filter, dtype="float16", pass_="forward", **more):
    return Conv.parse(image, filter, dtype=dtype, layout="NHWC", pass_=pass_, **more)


def build(p, tile, target="sim", batch=None):
    template = SPARSE if isinstance(tile, SparsePairTile) else TEMPLATE
    assert template.fits(p, SM_90A)
    return tilewright.build(*template.scheduled(p, tile, batch), target)


@pytest.mark.parametrize("target", ["sim", pytest.param(SM_90A, marks=pytest.mark.needs_cuda)])
def test_products_that_skip_zeros_keep_channels_apart(target):
    """Of a pair, what is not finite in one channel is not in the other's results."""
    if target is SM_90A:
        skip_unless_hopper()
    p, tile = problem((1, 8, 7, 16), (8, 1, 7, 7), padding=3), SparsePairTile(4, 1, 2, 4, 1, 1, 1)
    x = np.ones((1, 7, 16, 8), "float16")
    x[..., 2] = np.nan
    y = np.empty_like(x)
    build(p, tile, target)(x, np.ones((8, 1, 7, 7), "float16"), y)
    assert np.isnan(y[..., 2]).all()
    assert np.isfinite(np.delete(y, 2, axis=-1)).all()


@pytest.mark.parametrize(
    ("k", "stride", "wanted"),
    [(7, 1, True), (6, 1, True), (9, 1, True), (5, 1, False), (10, 1, False), (7, 2, False),
     (1, 2, False), (3, 2, False)],
)  # fmt: skip
def test_products_that_skip_zeros_are_for_filters_with_which_they_take_less(k, stride, wanted):
    p = problem((2, 16, 20, 20), (16, 1, 5, k), padding=(2, k // 2), stride=(1, stride))
    assert ("gpu.sparse_pairs" in [t.name for t in templates(p, SM_90A)]) == wanted


@pytest.mark.needs_nvrtc
def test_tiles_of_products_that_skip_zeros_do_not_spill():
    p = problem((64, 64, 40, 40), (64, 1, 9, 9), padding=4)
    for tile in SPARSE.tiles(p, SM_90A)[::40]:
        assert build(p, tile, SM_90A).resources["main_kernel"].spills == 0


def test_more_strips_and_groups_than_a_product_has_rows_are_an_error():
    p, tile = problem((2, 16, 20, 20), (16, 1, 7, 7)), SparsePairTile(4, 4, 4)
    with pytest.raises(LanguageError, match="strips by groups .* 1 to 8, not 16"):
        SPARSE.schedule(SPARSE.declare(p, tile), tile)


@pytest.mark.needs_nvrtc
def test_axes_and_stages_may_be_named_as_words_of_a_load():
    p, tile = problem((1, 8, 7, 16), (8, 1, 7, 7), padding=3), SparsePairTile(4, 1, 2, 4, 1, 1, 1)
    text = build(p, tile, SM_90A).source
    load = text[text.index("// load_pairs") :]
    load = load[: load.index("mma.sp")]
    assert not re.search(r"^ *(const|unsigned|bool|int) ", load, re.M)  # it declares nothing


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize(
    ("dtype", "k", "tile", "instruction", "products", "loads"),
    [
        ("float16", 5, PairTile(4, 4, 4, 4, 1, 1, 4, 8, 2), "HMMA.16816", 4 * 5 * 4, 8 * 4),
        ("bfloat16", 7, PairTile(2, 4, 2, 4, 1, 1, 4, 18, 2), "HMMA.1688", 2 * 7 * 3 * 4, 48),
        ("float16", 7, SparsePairTile(4, 4, 2, 2, 1, 1, 8, 8, 2), "HMMA.SP.16832", 4 * 7 * 2, 0),
    ],
)
def test_a_row_is_loaded_once_for_all_products_with_it(
    dtype, k, tile, instruction, products, loads
):
    p = problem((64, 96, 56, 56), (96, 1, k, k), dtype, padding=k // 2)
    kernel = build(p, tile, SM_90A)
    used = kernel.resources["main_kernel"]
    assert used.spills == 0
    assert used.registers <= 192
    assert "UTMALDG" in kernel.assembly
    assert len(re.findall(rf"\b{re.escape(instruction)}\.", kernel.assembly)) == products
    staged = tile.rows * tile.places * tile.outputs // 32  # loads of results
    assert len(re.findall(r"\bLDS\.128", kernel.assembly)) <= loads + staged


@pytest.mark.parametrize(
    ("p", "tile", "products"),
    [
        (problem((8, 16, 7, 7), (16, 1, 7, 7), padding=3), PairTile(7, 1, 2, 2, 1, 1, 4), 37),
        (problem((8, 16, 7, 7), (16, 1, 7, 7), padding=3), PairTile(7, 2, 2, 2, 1, 1, 4), 43),
        (problem((8, 16, 6, 7), (16, 1, 7, 7), pass_="dgrad", padding=2),
         PairTile(6, 1, 2, 2, 1, 1, 4), 3 + 4 * 4 + 3),
        (problem((4, 16, 5, 9), (16, 1, 5, 5), padding=(1, 2, 2, 2), stride=(2, 1)),
         PairTile(3, 1, 4, 2, 1, 1, 4), 4 + 4 + 2),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.needs_nvrtc
def test_rows_of_padding_are_left_out_where_a_tile_is_as_high_as_the_image(p, tile, products):
    """Of ``products``, of rows of the filter and of the image, each part and pair has one."""
    cut = pair_cut(p, tile)
    code = build(p, tile, SM_90A).assembly
    assert len(re.findall(r"\bHMMA\.", code)) == products * cut.parts * cut.pairs
    assert run(p, build(p, tile)) < TOLERANCE[p.dtype]


@pytest.mark.needs_nvrtc
def test_addresses_and_operands_are_made_once():
    p = problem((64, 384, 14, 14), (384, 1, 7, 7), padding=3)
    code = build(p, PairTile(7, 2, 4, 2, 1, 1, 4), SM_90A).assembly
    first, last = code.index("HMMA"), code.rindex("HMMA")
    between = re.findall(r"\b(HMMA|LDS|MOV|IMAD|LEA|LOP3|SHF)\b", code[first:last])
    count = {name: between.count(name) for name in set(between)}
    assert count["HMMA"] == 7 * 7 * 3 * 2 - 1
    words = 13 * 3 * 2 * 2  # that two products of a row have
    assert sum(count.get(n, 0) for n in ("MOV", "IMAD", "LEA", "LOP3", "SHF")) < 1.2 * words


@pytest.mark.needs_nvrtc
def test_a_tile_is_asked_for_before_the_results_of_another_are_stored():
    p = problem((64, 96, 56, 56), (96, 1, 5, 5), padding=2)
    loop = build(p, PairTile(4, 4, 4, 4, 1, 1, 4, 8, 2), SM_90A).source.rpartition(
        "DepthwiseConv_fragment["
    )[0]
    assert loop.rindex("tma.load(") < loop.rindex("store_half8(")


def test_a_last_block_of_fewer_tiles_has_no_memory_of_its_own():
    p = problem((64, 56, 97, 100), (56, 1, 7, 7), "bfloat16", "dgrad", padding=3)
    tile = PairTile(5, 4, 4, 4, lots=8, turns=17, stages=2)  # 2,240 tiles by 132 blocks
    lowered = tilewright.lower(*TEMPLATE.scheduled(p, tile), SM_90A)
    held = [b for f in lowered.funcs for b in allocated(f.body) if b.scope == "shared"]
    assert sum(b.name == "grad.shared" for b in held) == 1
