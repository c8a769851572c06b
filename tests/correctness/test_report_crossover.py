"""Maps show the fastest algorithm of each problem, by how much, and against another library."""

import re
import sys
from pathlib import Path

import pytest

from tilewright.report.crossover import ALGORITHMS, algorithm, cell, crossover
from tilewright.report.histories import History
from tilewright.report.overview import overview
from tilewright.topi.operators.conv import Conv
from tilewright.topi.templates import TEMPLATES

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TIMES = [("gpu.toeplitz", 12.0), ("gpu.toeplitz", 10.0), ("gpu.toeplitz_staged", 11.0)]


def problem(image=32, kernel=13, **changes):
    usual = {"batch": 64, "channels": 384, "height": image, "width": image, "kernel_h": kernel,
             "kernel_w": kernel, "padding": kernel // 2, "dtype": "float16"}  # fmt: skip
    return Conv(**{**usual, **changes})


def cells(count=6, times=TIMES, other=400.0, **changes):
    """Filters from 7 on of images of two sizes."""
    return [
        cell(problem(image, 7 + 2 * k, **changes), times, other)
        for image in (16, 32)
        for k in range(count // 2)
    ]


def text(parts):
    return re.sub(r"<[^>]*>", "|", "".join(parts))


def test_every_product_of_matrices_has_a_letter_of_its_own():
    known = {name for _, _, names in ALGORITHMS for name in names}
    drawn = [t for t in TEMPLATES.values() if "depthwise_conv2d" in t.operators]
    assert {t.name for t in drawn if t.gpu and t.matrices} <= known


def test_a_cell_says_who_is_fastest_by_how_much_and_beside_whom():
    found = cell(problem(), TIMES, 400.0)
    assert (found.best, round(found.margin, 9), found.ratio) == (10.0, 0.1, 40.0)
    made = text(crossover(cells()))
    assert made.count("|40×|") == made.count("|R +10%|") == 6
    assert "warpgroups, images in registers 10.0 µs, warpgroups, images staged 11.0 µs" in made


def test_without_another_library_a_cell_has_our_time_and_without_a_second_no_margin():
    made = text(crossover(cells(times=TIMES[:1], other=None))[2:])
    assert made.count("|12.0 µs|") == made.count("|R|") == 6


def test_a_near_tie_is_faint_and_a_clear_winner_strong():
    def opacity(second):
        times = [("gpu.toeplitz", 10.0), ("gpu.toeplitz_warps", second)]
        made = "".join(crossover(cells(times=times)))
        return {float(o) for o in re.findall(r'fill-opacity="([\d.]+)"', made)}.pop()

    assert opacity(10.0) < opacity(12.0) < opacity(15.0) == opacity(40.0)


def test_maps_beside_each_other_have_the_same_axes():
    made = crossover(cells() + cells(8, batch=1))
    maps = [re.findall(r">(K \d+|\d+²)<", part) for part in "".join(made).split("<svg")[1:]]
    assert len(maps) == 2
    assert maps[0] == maps[1] == ["K 7", "K 9", "K 11", "K 13", "16²", "32²"]


def test_what_stands_alone_is_in_a_table_and_what_is_not_square_is_left_out():
    alone = [problem(28, 29), problem(32, 31), problem(dtype="float32", batch=1)]
    made = text(crossover(cells() + [cell(p, TIMES) for p in alone]))
    for name in ("64x384x28x28 K29", "64x384x32x32 K31", "1x384x32x32 K13 s1 float32"):
        assert f"|forward {name}" in made
    assert "|K 29|" not in made
    assert crossover([cell(problem(kernel=13, kernel_w=5), TIMES)]) == []


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_every_template_is_of_one_algorithm(name):
    named = [letter for letter, _, templates in ALGORITHMS if name in templates]
    assert [ALGORITHMS[algorithm(name)][0]] == (named or ["C"])
    assert named or not name.startswith(("gpu.toeplitz", "gpu.row_products"))


def test_a_report_of_tuning_has_maps_where_several_algorithms_were_tried():
    def history(image, kernel, *templates):
        trials = [(k, 1e-5 * k, f"{t}, rows 4") for k, t in enumerate(templates, 1)]
        p = problem(image, kernel)
        return History(str(p), "a GPU", "cuda", p, len(trials), trials)

    tried = "gpu.toeplitz_warps", "gpu.strips"
    several = [history(i, 7 + 2 * k, *tried) for i in (16, 32) for k in range(3)]
    assert "The fastest algorithm" in overview([], several)
    assert text([overview([], several)]).count("|W ×2.0|") == 6
    assert "The fastest algorithm" not in overview(
        [], [history(32, 13, "gpu.strips", "gpu.planes")]
    )


def test_the_committed_sweep_is_drawn_for_every_pass_and_batch(tmp_path, monkeypatch):
    page = tmp_path / "page.html"
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setattr(sys, "argv", ["crossover.py", "-o", str(page)])
    import crossover as benchmark

    benchmark.main()
    made = page.read_text()
    for pass_ in ("forward", "dgrad", "wgrad"):
        for batch in (64, 1):
            assert f">{pass_}, batch {batch}<" in made
    assert len(re.findall(r">\d+×<", made)) > 60
