"""Of the choices the first is taken that can be built and has registers for what it holds."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from tests.support.benchmarks import benchmark

import tilewright
from tilewright.ir.errors import TargetError
from tilewright.select.choice import Choice, choose, options
from tilewright.select.first_buildable import SPILLED, TRIES, first_buildable, spills_of
from tilewright.topi import Conv
from tilewright.topi.templates import TEMPLATES

P = Conv.parse((1, 4, 8, 8), (4, 1, 3, 3), padding=1)
ANY = choose(P)


def choice(spills: int | str, seconds: float | None = None) -> Choice:
    return replace(ANY, config=spills, seconds=seconds)


def build(one: Choice) -> Any:
    if isinstance(one.config, str):
        raise TargetError(one.config)
    return one.config


def taken(*choices: Choice) -> Any:
    found = first_buildable(choices, build, lambda spills: spills)
    return None if found is None else found[0]


def test_a_few_bytes_of_registers_in_memory_do_not_count() -> None:
    assert taken(choice(SPILLED - 1), choice(0)) == SPILLED - 1


def test_one_whose_registers_go_to_memory_is_passed_over_where_another_fits() -> None:
    assert taken(choice(3888), choice("no such kernel"), choice(500), choice(0)) == 0


def test_where_none_fits_the_first_is_taken() -> None:
    assert taken(choice(200), choice(100)) == 200
    assert taken(*[choice(200 + k) for k in range(TRIES)], choice(0)) == 200


def test_those_of_an_algorithm_that_hold_as_much_as_one_that_spills_are_not_built() -> None:
    p = Conv.parse(
        (64, 104, 51, 51), (104, 1, 15, 15), 104, stride=2, padding=7, dtype="float16",
        layout="NHWC",
    )  # fmt: skip
    alike = (one for one in options(p, "cuda -arch=sm_90a") if one.name == "gpu.channel_pairs")
    ordered = sorted(islice(alike, TRIES), key=lambda one: one.held)
    first, *others = [replace(one, seconds=None) for one in ordered]
    assert others
    assert first.held > 0
    built: list[Choice] = []
    found = first_buildable([first, *others], built.append, lambda _: SPILLED)
    assert found == (None, first)
    assert built == [first]


def test_what_was_measured_is_taken_whatever_it_spills() -> None:
    assert taken(choice(200, seconds=1e-6), choice(0)) == 200


def test_the_first_error_is_told_where_none_can_be_built() -> None:
    with pytest.raises(TargetError, match="first"):
        taken(choice("first"), choice("second"))
    assert taken() is None


@pytest.mark.needs_nvrtc
def test_a_kernel_says_what_it_spills() -> None:
    """Two hundred registers of sums in blocks of 512 threads, which have 128 each."""
    p = Conv.parse((64, 208, 51, 51), (208, 1, 15, 15), padding=7, dtype="float16")
    template = TEMPLATES["gpu.toeplitz"]
    names = list(vars(template.config()))
    config = template.parse(dict(zip(names, (8, 16, 4, 2, 3), strict=True)))
    kernel = tilewright.build(*template.scheduled(p, config), "cuda -arch=sm_90a", verify=False)
    assert spills_of(kernel) > 1000


def test_the_benchmark_of_untuned_shapes_takes_what_is_taken_here() -> None:
    bench = benchmark("untuned_shapes")
    notes = {"a": "{'main': (255, 304)}", "b": "TargetError: no", "c": "{'main': (9, 16)}"}
    assert bench.taken(notes) == "c"
    assert bench.taken({"b": notes["b"], "a": notes["a"]}) == "a"
    assert bench.taken({"b": notes["b"]}) == "b"
