"""What a choice without measuring came to is found again, as long as nothing that it is made by
has changed."""

from __future__ import annotations

import pytest

from tilewright.runtime.build import forget
from tilewright.select import ahead, choice, find, options
from tilewright.select.profile_cache import Measured, ProfileCache
from tilewright.select.remembered import chosen_kernel
from tilewright.target import Target
from tilewright.topi import Conv
from tilewright.tune.records import default_path

TARGET = Target.parse("llvm")
PROBLEM = Conv.parse((1, 8, 9, 9), (8, 1, 3, 3), padding=1)


@pytest.fixture
def choices(monkeypatch, tmp_path):
    """How often a kernel was chosen."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    made, choose = [], ahead.build_chosen

    def counted(*args, **more):
        made.append(args)
        return choose(*args, **more)

    monkeypatch.setattr(ahead, "build_chosen", counted)
    return made


def test_a_choice_is_made_once(choices):
    first = chosen_kernel(PROBLEM, TARGET)
    before = len(choices)
    forget()  # as a new process has
    again = chosen_kernel(PROBLEM, TARGET)
    assert again is not first
    assert again.key == first.key
    assert len(choices) == before == 1
    assert chosen_kernel(PROBLEM.replace(dtype="float64"), TARGET).key != first.key
    assert len(choices) == 2


@pytest.mark.needs_torch
def test_pytorchs_kernel_is_left_out_where_it_was_the_fastest(choices, monkeypatch):
    import torch  # noqa: F401

    kept, fastest = ProfileCache(), find("pytorch")
    monkeypatch.setattr(choice, "_cache", lambda: kept)
    measured = Measured("pytorch", fastest.version, fastest.to_values(()), 1e-9, 0, False)
    machine = choice.machine_of(choice.with_own_architecture(TARGET))
    kept.put(PROBLEM.key, machine, [measured])
    assert next(iter(options(PROBLEM, TARGET))).algorithm.vendor
    assert chosen_kernel(PROBLEM, TARGET) is not None


def test_it_is_made_again_where_there_are_other_records(choices):
    chosen_kernel(PROBLEM, TARGET)
    place = default_path()
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(b"")  # of another size and time than none
    chosen_kernel(PROBLEM, TARGET)
    assert len(choices) == 2


def test_it_is_made_again_where_the_kernel_is_gone(choices):
    kernel = chosen_kernel(PROBLEM, TARGET)
    forget()
    for entry in default_path().parent.rglob("*.tw"):
        if b"head.json" in entry.read_bytes():
            entry.unlink()
    assert chosen_kernel(PROBLEM, TARGET).key == kernel.key
    assert len(choices) == 2
