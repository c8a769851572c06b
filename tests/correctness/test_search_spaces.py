"""Search spaces count, name and order configurations as AutoTVM does."""

import json

import numpy as np
import pytest

from tilewright import te
from tilewright.tune.config import ConfigEntity, ConfigSpace, FallbackConfig
from tilewright.tune.dispatch import ApplyConfig, get_config
from tilewright.tune.entity import SplitEntity
from tilewright.tune.task import Task, create
from tilewright.tune.template import template


def sizes(space, name):
    return [list(e.size) for e in space.space_map[name]]


def test_splits_into_factors_divide():
    space = ConfigSpace()
    space.define_split("tile", 12, num_outputs=2)
    assert sizes(space, "tile") == [[-1, 1], [-1, 2], [-1, 3], [-1, 4], [-1, 6], [-1, 12]]


@pytest.mark.parametrize(
    ("policy", "more", "inner"),
    [
        ("power2", {}, [1, 2, 4, 8]),
        ("power2", {"no_tail": True}, [1, 2, 4]),
        ("verbose", {}, [1, 2, 3, 4, 6, 8, 12]),
        ("factors", {"max_factor": 4}, [1, 2, 3, 4]),
        ("factors", {"filter": lambda e: e.size[-1] % 3 == 0}, [3, 6, 12]),
        ("candidate", {"candidate": [[-1, 5], [-1, 7]]}, [5, 7]),
    ],
)
def test_policies_of_splits(policy, more, inner):
    space = ConfigSpace()
    space.define_split("tile", te.reduce_axis((0, 12)), policy=policy, **more)
    assert [s[-1] for s in sizes(space, "tile")] == inner


def test_splits_into_four_loops():
    space = ConfigSpace()
    space.define_split("tile", 512, num_outputs=4)
    assert len(space) == 220  # the ways to share nine factors of two among four loops


def test_orders():
    space = ConfigSpace()
    a, b, c, d = (space.axis(n) for n in (2, 3, 4, 5))
    space.define_reorder("all", [a, b, c], policy="all")
    space.define_reorder("some", [a, b, c], policy="candidate", candidate=[[c, a, b], [0, 2, 1]])
    space.define_reorder(
        "mixed", [a, b, c, d], policy="interleave", spatial=[[a, b]], reduce=[[c, d]]
    )
    assert len(space.space_map["all"]) == 6
    assert [e.perm for e in space.space_map["some"]] == [(2, 0, 1), (0, 2, 1)]
    assert all(
        p.perm.index(0) < p.perm.index(1) and p.perm.index(2) < p.perm.index(3)
        for p in space.space_map["mixed"]
    )
    assert len(space.space_map["mixed"]) == 6


def test_annotations():
    space = ConfigSpace()
    space.define_annotate("mark", [space.axis(4), space.axis(8)], policy="try_unroll_vec")
    assert [e.anns for e in space.space_map["mark"]] == [
        ("none", "none"), ("none", "unroll"), ("none", "vec"),
        ("unroll", "none"), ("unroll", "unroll"), ("unroll", "vec"),
    ]  # fmt: skip


def small_space():
    space = ConfigSpace()
    space.define_split("x", 8)
    space.define_knob("u", [0, 16, 512])
    space.define_knob("p", ["a", "b"])
    return space


def test_the_first_knob_is_the_fastest_digit_of_an_index():
    space = small_space()
    assert space.get(1)["x"].size == (-1, 2)
    assert space.get(4)["u"].val == 16
    assert [space.index(space.point(i)) for i in range(len(space))] == list(range(24))
    assert all(space.find(c.entities) == c.index for c in space)


def test_constraints_leave_configurations_out_everywhere():
    space = small_space()
    space.define_constraint(lambda c: c["x"].size[-1] > 1 or c["u"].val == 0)
    valid = {c.index for c in space}
    assert len(space) == len(valid) == 20
    assert space.range_length == 24
    rng = np.random.default_rng(0)
    assert set(space.sample(50, rng)) == valid
    assert all(set(space.neighbours(i)) < valid for i in valid)
    assert all(space.random_walk(i, rng) in valid for i in valid)


def test_samples_differ_and_leave_out_what_is_known():
    space = ConfigSpace()
    space.define_split("x", 1 << 12, num_outputs=4)
    space.define_split("y", 1 << 12, num_outputs=4)
    known = set(range(1000))
    drawn = space.sample(500, np.random.default_rng(0), known)
    assert len(set(drawn)) == 500
    assert not known & set(drawn)


def test_neighbours_differ_in_one_knob():
    space = small_space()
    for near in space.neighbours(7):
        assert sum(a != b for a, b in zip(space.point(7), space.point(near))) == 1
    assert len(space.neighbours(7)) == 3 + 2 + 1


def test_configurations_survive_json():
    space = small_space()
    space.define_reorder("o", "ab", "all")
    space.define_annotate("m", "ab", "try_unroll")
    for config in space:
        again = ConfigEntity.from_json_dict(json.loads(json.dumps(config.to_json_dict())))
        assert again == config
        assert again.index == config.index


@template("tests/tuned_sum")
def tuned_sum(n: int, m: int):
    cfg = get_config()
    A = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), name="k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")
    s = te.create_schedule(B.op)
    cfg.define_split("i", s[B].op.axis[0], num_outputs=3)
    cfg.define_split("k", s[B].op.reduce_axis[0], num_outputs=2)
    _, im, ii = cfg["i"].apply(s, B, s[B].op.axis[0])
    ko, ki = cfg["k"].apply(s, B, s[B].op.reduce_axis[0])
    cfg.define_reorder("order", [im, ii, ko, ki], "interleave", spatial=[[im, ii]],
                       reduce=[[ko, ki]])  # fmt: skip
    cfg["order"].apply(s, B, [im, ii, ko, ki])
    cfg.define_annotate("mark", [ki], "try_unroll")
    cfg["mark"].apply(s, B, [ki])
    return s, [A, B]


def test_a_template_is_a_schedule_for_each_configuration():
    import tilewright

    task = create("tests/tuned_sum", (8, 6), "llvm")
    assert len(task.config_space) == 10 * 4 * 6 * 2
    a = np.random.default_rng(0).standard_normal((8, 6)).astype("float32")
    for index in (0, 123, len(task.config_space) - 1):
        s, args = task.instantiate(task.config_space.get(index))
        b = np.empty(8, "float32")
        tilewright.build(s, args, task.target)(a, b)
        np.testing.assert_allclose(b, a.sum(1), rtol=1e-5)


def test_outside_of_tuning_a_template_takes_the_first_choices():
    s, (_, out) = tuned_sum(8, 6)
    assert len(s[out].leaf_iter_vars) == 5
    config = FallbackConfig()
    config["i"] = SplitEntity((-1, 2, 2))
    with ApplyConfig(config):
        tuned_sum(8, 6)
    assert config["i"].size == (-1, 2, 2)


def test_tasks_survive_json():
    A = te.placeholder((4, 8), "float16", name="A")
    task = Task("tests/none", (A, (1, 2), "NCHW", None, True), create(
        "tests/tuned_sum", (8, 6), "cuda -arch=sm_90a").target)  # fmt: skip
    again = Task.from_json(json.loads(json.dumps(task.to_json())))
    assert again.workload == task.workload
    assert again.key == task.key
    assert again.target == task.target


def test_operations_are_counted_from_the_declaration():
    assert create("tests/tuned_sum", (8, 6), "llvm").flop == 8 * 6
