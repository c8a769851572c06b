"""Operations of a program's own, and rules for what operations are on a target."""

from __future__ import annotations

import numpy as np
import pytest
from tilewright.tvm.ir import register_intrin_lowering, register_op_attr

from tilewright import tvm
from tilewright.ir.errors import LanguageError
from tilewright.tvm import rules, te, tir


@pytest.fixture(autouse=True)
def no_others(monkeypatch):
    monkeypatch.setattr(rules, "_rules", {})
    monkeypatch.setattr(rules, "_own", set())


def built(function, target="llvm"):
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: function(a[i]), name="B")
    s = te.create_schedule(b.op)
    if target != "llvm":
        outer, inner = s[b].split(b.op.axis[0], factor=64)
        s[b].bind(outer, te.thread_axis("blockIdx.x"))
        s[b].bind(inner, te.thread_axis("threadIdx.x"))
    return tvm.build(s, [a, b], target, name="own")


def by_c(name):
    def rule(op):
        assert isinstance(op, tir.Call)
        if op.dtype != "float32":
            return op
        return tir.call_pure_extern("float32", name, op.args[0])

    return rule


def test_an_operation_of_ones_own_is_what_its_rule_says():
    x, y = np.linspace(0.5, 2, 7, dtype="float32"), np.zeros(7, "float32")
    with pytest.raises(LanguageError, match=r"there is no function 'tir.mylog'"):
        tir.call_intrin("float32", "tir.mylog", te.var("x", "float32"))
    register_op_attr("tir.mylog", "TCallEffectKind", tir.CallEffectKind.Pure)
    register_intrin_lowering("tir.mylog", target="llvm", f=by_c("logf"), level=99)
    built(lambda e: tir.call_intrin(e.dtype, "tir.mylog", e))(x, y)
    np.testing.assert_allclose(y, np.log(x), rtol=1e-6)


def test_a_rule_changes_an_operation_on_its_target_alone():
    x, y = np.linspace(0.5, 2, 7, dtype="float32"), np.zeros(7, "float32")
    register_intrin_lowering("tir.exp", target="llvm", f=by_c("log1pf"), level=99)
    register_intrin_lowering("tir.exp", target="llvm", f=by_c("sinf"), level=11)
    register_intrin_lowering("tir.exp", target="cuda", f=by_c("__expf"))
    built(te.exp)(x, y)
    np.testing.assert_allclose(y, np.log1p(x), rtol=1e-6)
    rules._rules.pop(("llvm", "exp"))
    built(te.exp)(x, y)
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-6)


@pytest.mark.parametrize("made", [tir.const(1, "int32"), 2.0], ids=repr)
def test_a_rule_gives_what_has_the_type_of_the_call(made):
    register_intrin_lowering("tir.exp", target="llvm", f=lambda op: made)
    with pytest.raises(LanguageError, match="the rule for exp on llvm gives .*, no float32"):
        built(te.exp)


@pytest.mark.needs_nvrtc
def test_cuda_calls_what_the_rule_names():
    register_intrin_lowering("tir.exp", target="cuda")(by_c("__expf"))
    assert "__expf(A[" in built(te.exp, "cuda -arch=sm_80").get_source()
