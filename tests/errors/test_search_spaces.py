"""Search spaces that cannot be are refused with the knob's name and the mend."""

import pytest

from tilewright import te
from tilewright.tune.config import ConfigEntity, ConfigSpace
from tilewright.tune.dispatch import get_config
from tilewright.tune.entity import TuningError
from tilewright.tune.task import create
from tilewright.tune.template import template


@pytest.mark.parametrize(
    ("define", "message"),
    [
        (lambda c: c.define_split("x", 8, policy="halves"), "unknown policy 'halves'"),
        (lambda c: c.define_split("x", te.var("n")), 'policy="candidate"'),
        (lambda c: c.define_split("x", 8, filter=lambda e: False), "no choice left"),
        (lambda c: c.define_split("x", 2**40, "power2", num_outputs=9), "max_factor"),
        (lambda c: c.define_reorder("x", "ab", "candidate", candidate=[[0, 0]]), "not an order"),
        (lambda c: c.define_reorder("x", "ab", "some"), "interval_all"),
        (lambda c: c.define_annotate("x", "ab", "try"), "try_unroll_vec"),
        (lambda c: c.define_knob("x", []), "no choice left"),
        (lambda c: [c.define_knob("x", [1]), c.define_knob("x", [2])], "defined twice"),
        (lambda c: c["y"], "no knob 'y'"),
        (lambda c: c.get(7), "not in a space"),
    ],
)
def test_a_knob_that_cannot_be(define, message):
    with pytest.raises(TuningError, match=message):
        define(ConfigSpace())


def test_a_configuration_of_an_older_template_says_so():
    config = ConfigEntity.from_json_dict({"index": 3, "entity": [["a", "ot", 1]]})
    with pytest.raises(TuningError, match="tune it again"):
        config["b"]


@template("tests/no_schedule")
def no_schedule():
    get_config().define_knob("x", [1])


@template("tests/no_knob")
def no_knob():
    A = te.placeholder((4,))
    B = te.compute((4,), lambda i: A[i])
    return te.create_schedule(B.op), [A, B]


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("tests/unheard_of", (), "there is no template"),
        ("tests/no_schedule", (), "it returns"),
        ("tests/no_knob", (), "defines no knob"),
        ("tests/no_knob", (object(),), "placeholders"),
    ],
)
def test_a_task_that_cannot_be(name, args, message):
    with pytest.raises((TuningError, TypeError), match=message):
        create(name, args, "llvm")
