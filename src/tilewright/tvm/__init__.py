"""The names under which articles, and TVM's users, know all this.

``from tilewright import tvm`` in place of ``import tvm`` runs tensor-expression programs of 2017
(``tvm.compute``, ``tvm.select``, ``tvm.create_schedule``) and of 2024 (``te.compute``,
``tvm.tir.if_then_else``, ``tvm.lower``, ``tvm.build``). In declarations under these names, types
meet as TVM's do; under the names of 2017, ``/`` and ``%`` on integers are C's.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any

from tilewright import __version__ as __version__
from tilewright import te as _te
from tilewright.arith import Analyzer as _Analyzer
from tilewright.ir import expr as _expr
from tilewright.ir import ops as _ops
from tilewright.ir import stmt as _stmt
from tilewright.ir.buffer import Buffer as _Buffer
from tilewright.ir.dtype import dtype as _to_dtype
from tilewright.ir.errors import TilewrightError
from tilewright.ir.func import Func as _Func
from tilewright.runtime import Device, NDArray
from tilewright.schedule import Schedule
from tilewright.schedule import relations as _relations
from tilewright.schedule.stage import ITER_TYPES as _ITER_TYPES
from tilewright.schedule.transform_layout import AXIS_SEPARATOR
from tilewright.target import Target as _Target
from tilewright.tvm import compilers as _compilers
from tilewright.tvm import csr as _csr
from tilewright.tvm import functions as _functions
from tilewright.tvm import hybrid as _hybrid
from tilewright.tvm import intrinsics as _intrinsics
from tilewright.tvm import ir_builder as _builder
from tilewright.tvm import machines as _machines
from tilewright.tvm import nvcc as _nvcc
from tilewright.tvm import older as _older
from tilewright.tvm import packed as _packed
from tilewright.tvm import parametrize as _parametrize
from tilewright.tvm import programs as _programs
from tilewright.tvm import rules as _rules
from tilewright.tvm import stages as _stages
from tilewright.tvm import structure as _structure
from tilewright.tvm.functions import convert as convert
from tilewright.tvm.machines import cpu, cuda, device, opencl
from tilewright.tvm.namespaces import Constructor as _Constructor
from tilewright.tvm.namespaces import Namespace as _Namespace
from tilewright.tvm.namespaces import absent as _absent
from tilewright.tvm.namespaces import missing as _missing
from tilewright.tvm.programs import (
    BuiltModule,
    IRModule,
    build,
    build_config,
    create_schedule,
    lower,
    pass_context,
)

__all__ = [
    *_te.__all__, "BuiltModule", "IRModule", "Schedule", "TVMError", "arith", "build",
    "build_config", "cl", "container", "context", "contrib", "convert", "cpu", "create_schedule",
    "cuda", "decl_buffer", "decl_tensor_intrin", "device", "driver", "error", "expr",
    "get_global_func", "gpu", "ir", "ir_builder", "lower", "module", "nd", "opencl",
    "register_func", "runtime", "schedule", "stmt", "target", "te", "tensor", "testing", "tir",
    "topi", "transform",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _language:
        return _language[name]
    if name == "topi":  # so is what declares operators
        return importlib.import_module("tilewright.tvm.topi")
    if name in (
        "auto_scheduler",
        "autotvm",
        "rpc",
    ):  # loaded when they are asked for: most programs do not tune
        return importlib.import_module(f"tilewright.tvm.{name}")
    if name in _older.TYPES:
        return _older.TYPES[name]
    if name in _absent:
        return _absent[name]
    if name.startswith("__"):
        raise AttributeError(name)
    raise _missing("tvm", name, sorted(__all__))


# -- the language ------------------------------------------------------------------------------


def compute(
    shape: Any,
    fcompute: Callable[..., Any],
    name: str = "compute",
    tag: str = "",
    attrs: Any = None,
) -> Any:
    """``te.compute`` with the arithmetic of 2017: ``/`` and ``%`` on integers are C's."""
    with _ops.truncating_division(), _ops.tvm_promotion():
        return _te.compute(shape, fcompute, name, tag, attrs)


def placeholder(shape: Any, dtype: Any = "float32", name: str = "placeholder") -> _te.Tensor:
    """``te.placeholder``; the type may also be NumPy's."""
    return _te.placeholder(shape, _machines.dtype_name(dtype), name)


def _promoting(function: Any) -> Any:
    """A function of the language in which types are promoted as TVM's do; classes are left as they
    are."""
    if not inspect.isfunction(function):
        return function

    @functools.wraps(function)
    def promoting(*args: Any, **more: Any) -> Any:
        with _ops.tvm_promotion():
            return function(*args, **more)

    return promoting


_language: dict[str, Any] = {name: getattr(_te, name) for name in _te.__all__}
_language |= {name: getattr(_functions, name) for name in _functions.__all__}
_language |= {
    "call_packed": _packed.call_packed,
    "decl_buffer": _intrinsics.decl_buffer,
    "decl_tensor_intrin": _intrinsics.decl_tensor_intrin,
}
_language = {name: _promoting(known) for name, known in _language.items()}
_language["Select"] = _Constructor(_expr.Select, _functions.select)
_nodes: dict[str, Any] = {
    name: cls
    for name, cls in vars(_expr).items()
    if isinstance(cls, type) and issubclass(cls, _expr.Expr)
}
_nodes |= {
    "FloatImm": _Constructor(_expr.FloatImm, lambda type, value: _ops.const(value, type)),
    "IntImm": _Constructor(_expr.IntImm, lambda type, value: _ops.const(value, type)),
    "Expr": _expr.Expr,
    "Mod": _expr.TruncMod,
    "SizeVar": _Constructor(_expr.Var, _expr.Var.make),
    "Var": _Constructor(_expr.Var, _expr.Var.make),
    "PrimExpr": _expr.Expr,
    "UIntImm": _Constructor(_expr.IntImm, _older.const_of),
}
te: Any = _Namespace("te", **_language, create_schedule=create_schedule, Schedule=Schedule)
te.placeholder = placeholder
te.AXIS_SEPARATOR = AXIS_SEPARATOR
te.tag_scope, te.create_prim_func = _te.tag_scope, _programs.create_prim_func
_nodes["Select"] = _language["Select"]
ir_builder: Any = _Namespace("tir.ir_builder", create=_builder.create, IRBuilder=_builder.IRBuilder)
_functor: Any = _Namespace(
    "tir.stmt_functor",
    post_order_visit=_functions.post_order_visit,
    substitute=_functions.substitute,
)
_statements = {
    name: cls
    for name, cls in vars(_stmt).items()
    if isinstance(cls, type) and issubclass(cls, _stmt.Stmt)
}
_iter_var = _Constructor(_te.IterVar, _te.IterVar, **_ITER_TYPES)
_program_nodes = {
    "Buffer": _Buffer,
    "BufferLoad": _expr.Load,
    "BufferStore": _stmt.Store,
    "ForKind": _Constructor(_stmt.ForKind, _stmt.ForKind, THREAD_BINDING=_stmt.ForKind.THREAD),
    "IfThenElse": _stmt.If,
    "IterVar": _iter_var,
    "LetStmt": _stmt.Let,
    "PrimFunc": _Func,
    "ProducerLoad": _expr.Load,
    "SeqStmt": _stmt.Seq,
}
stmt: Any = _Namespace("tir.stmt", **{**_statements, **_program_nodes})
_tir = {**_language, **_nodes, **_statements, **_program_nodes}
tir: Any = _Namespace("tir", **_tir, CallEffectKind=_rules.CallEffectKind)
tir.ir_builder, tir.stmt_functor, tir.stmt = ir_builder, _functor, stmt
register_func, get_global_func = _packed.register_func, _packed.get_global_func
decl_buffer, decl_tensor_intrin = _intrinsics.decl_buffer, _intrinsics.decl_tensor_intrin
expr: Any = _Namespace("expr", **_nodes, const=_functions.const)
_range = _Constructor(
    _te.Range,
    _te.Range,
    from_min_extent=_te.Range.from_extent,
    make_by_min_extent=_te.Range.from_extent,
)
ir: Any = _Namespace(
    "ir",
    Array=(list, tuple),
    IRModule=IRModule,
    PrimExpr=_expr.Expr,
    Range=_range,
    assert_structural_equal=_structure.assert_structural_equal,
    register_intrin_lowering=_rules.register_intrin_lowering,
    register_op_attr=_rules.register_op_attr,
    structural_equal=_structure.structural_equal,
)
container: Any = _Namespace("container", Array=(list, tuple), Map=dict)
error: Any = _Namespace("error", InternalError=TilewrightError, TVMError=TilewrightError)
tensor: Any = _Namespace(
    "tensor",
    Tensor=_te.Tensor,
    ComputeOp=_te.ComputeOp,
    PlaceholderOp=_te.PlaceholderOp,
    ExternOp=_te.ExternOp,
    Operation=_te.Operation,
)
schedule: Any = _Namespace(
    "schedule",
    Schedule=Schedule,
    create_schedule=create_schedule,
    Buffer=_Buffer,
    IterVar=_iter_var,
    Split=_relations.Split,
    Fuse=_relations.Fuse,
    Singleton=_relations.Single,
    AutoInlineBroadcast=_functions.inline_broadcast,
    AutoInlineElemWise=_functions.inline_elementwise,
    AutoInlineInjective=_functions.inline_injective,
    InferBound=_stages.infer_bound,
    ScheduleOps=_stages.schedule_ops,
)
te.tensor, te.schedule = tensor, schedule
te.hybrid = hybrid = _Namespace(
    "te.hybrid",
    script=_hybrid.script,
    runtime=_Namespace("te.hybrid.runtime", HYBRID_GLOBALS=_hybrid.HYBRID_GLOBALS),
)
sys.modules["tilewright.tvm.te.schedule"] = schedule
sys.modules["tilewright.tvm.te.tensor"] = tensor
arith: Any = _Namespace("arith", Analyzer=_Analyzer)
TVMError = TilewrightError


# -- headings of what runs ---------------------------------------------------------------------

gpu, cl, context = cuda, opencl, device
transform: Any = _Namespace("transform", PassContext=pass_context)
driver: Any = _Namespace(
    "driver",
    build=build,
    build_module=_Namespace(
        "driver.build_module",
        build=build,
        lower=lower,
        schedule_to_module=_programs.schedule_to_module,
    ),
    lower=lower,
)
contrib: Any = _Namespace(
    "contrib",
    cblas=_Namespace("contrib.cblas", matmul=_packed.matmul),
    cc=_Namespace("contrib.cc", create_shared=_compilers.create_shared),
    clang=_Namespace("contrib.clang", create_llvm=_compilers.create_llvm),
    sparse=_Namespace(
        "contrib.sparse",
        CSRNDArray=_csr.CSRNDArray,
        array=_csr.array,
        placeholder=_csr.placeholder,
    ),
    pickle_memoize=_Namespace("contrib.pickle_memoize", memoize=_functions.memoize),
    nvcc=_Namespace("contrib.nvcc", **{name: getattr(_nvcc, name) for name in _nvcc.__all__}),
    util=_Namespace("contrib.util", tempdir=_machines.tempdir),
    utils=_Namespace("contrib.utils", tempdir=_machines.tempdir),
    **{n.removeprefix("contrib."): m for n, m in _absent.items() if n.startswith("contrib.")},
)
nd: Any = _Namespace(
    "nd", array=_machines.nd_array, empty=_machines.nd_empty, NDArray=NDArray, cpu=cpu, gpu=gpu,
    cuda=cuda, cl=cl, opencl=opencl, context=context, device=device,
)  # fmt: skip
target: Any = _Namespace(
    "target",
    Target=_Constructor(_Target, _machines.make_target, current=_machines.current),
    create=_machines.make_target,
    current_target=_machines.current,
    generic_func=_older.generic_func,
    override_native_generic_func=_older.override_native_generic_func,
    codegen=_Namespace("target.codegen", llvm_version_major=_machines.llvm_version_major),
    **{kind: _machines.targets(kind) for kind in ("cuda", "opencl", "llvm", "sim")},
    mali=_machines.targets("opencl"),
    intel_graphics=_machines.targets("opencl"),
)
runtime: Any = _Namespace(
    "runtime", load_module=_machines.load_module, enabled=_machines.enabled, Device=Device,
    NDArray=NDArray, nd=nd, ndarray=nd, convert=convert, device=device,
)  # fmt: skip
module: Any = _Namespace(
    "module",
    load=_machines.load_module,
    load_module=_machines.load_module,
    enabled=_machines.enabled,
    Module=BuiltModule,
)


register_intrin_rule, call_pure_intrin = _older.register_intrin_rule, _older.call_pure_intrin
Expr, DataType, codegen, ndarray, intrin = _expr.Expr, _to_dtype, target.codegen, nd, te
for _path, _space in (
    ("ndarray", nd), ("intrin", te), ("codegen", codegen), ("tir.expr", expr),
    ("tir.function", tir), ("tir.buffer", tir), ("runtime.module", module),
    ("runtime.ndarray", nd), ("ir.module", ir),
):  # fmt: skip
    sys.modules[f"tilewright.tvm.{_path}"] = _space
tir.expr, tir.function, tir.buffer, runtime.module, ir.module = expr, tir, tir, module, ir


class _Plugin(_Namespace):
    """``tvm.testing.plugin``, whose fixture needs pytest: made when pytest looks."""

    def __init__(self) -> None:
        hook = _parametrize.pytest_generate_tests
        super().__init__("testing.plugin", pytest_generate_tests=hook)

    def __dir__(self) -> list[str]:
        self.__dict__["dev"] = _parametrize.device_fixture()
        return list(self.__dict__)


testing: Any = _Namespace(
    "testing",
    assert_allclose=_machines.assert_allclose,
    assert_prim_expr_equal=_functions.assert_prim_expr_equal,
    check_numerical_grads=_parametrize.check_numerical_grads,
    uses_gpu=lambda test: test,
    skip_if_wheel_test=lambda test: test,
    device_enabled=_machines.device_enabled,
    enabled_targets=_machines.enabled_targets,
    main=_parametrize.run_tests,
    parameter=_parametrize.parameter,
    parameters=_parametrize.parameters,
    parametrize_targets=_parametrize.parametrize_targets,
    exclude_targets=_parametrize.exclude_targets,
    known_failing_targets=_parametrize.known_failing_targets,
    fixture=_parametrize.fixture,
    plugin=_Plugin(),
    utils=_Namespace("testing.utils", get_dtype_range=_parametrize.get_dtype_range),
    **{f"requires_{kind}": _parametrize.Requirement(kind) for kind in _parametrize.REQUIREMENTS},
)
