"""Modules whose forward pass hands a convolution's result to its normalisation alone: these become
one kernel, with what is added to them then and an activation.

Of an ``nn.Sequential`` that is plain. Of any other class it is read from the forward pass as
``torch.fx`` traces it, so a class needs no entry anywhere: the blocks of timm's MobileNets and
EfficientNets are such, and so are users' own.
"""

from __future__ import annotations

import copyreg
import functools
import operator
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import fx, nn

from tilewright.torch.chains import Chain
from tilewright.torch.eager_fast_path import exports_onnx, is_transformed
from tilewright.torch.fusible import CONVOLUTIONS, acts, by_operator, is_fusible, is_norm, length
from tilewright.torch.norms import activation_step

#: Attributes of these types may decide what a forward pass does.
_SETTINGS = (bool, int, float, str, type(None))
_MISSING = object()


class Run(NamedTuple):
    """The names of modules of a block that may be one kernel.

    Attributes
    ----------
    names : a convolution, its normalisation, and perhaps an activation.
    passing : identities between them.
    adds : whether a tensor is added behind the normalisation.
    """

    names: tuple[str, ...]
    passing: tuple[str, ...] = ()
    adds: bool = False


class _Plan:
    """What a block calls in place of its modules, as long as it is as it was when it was traced."""

    __slots__ = ("modules", "settings", "traced")

    def __init__(self, block: nn.Module) -> None:
        self.traced = (*block._modules.values(),)
        self.settings = _settings(block)
        self.modules: dict[str, Any] = dict(block._modules)
        for run in runs(block):
            modules, passing = (
                tuple(block._modules[name] for name in names) for names in (run.names, run.passing)
            )
            stand_ins = Chain(modules, passing, run.adds).stand_ins()
            self.modules.update(zip(run.names, stand_ins, strict=True))


class FusedBlock(nn.Module):
    """What classes made by :func:`fused` inherit from."""

    unfused: type

    def __reduce_ex__(self, protocol: Any) -> Any:
        made = super().__reduce_ex__(max(2, protocol))
        if not isinstance(made, tuple) or made[0] is not copyreg.__newobj__:  # type: ignore[attr-defined]
            return made
        state = {name: value for name, value in made[2].items() if name != "_plan"}
        return (_empty, (self.unfused,), state, *made[3:])

    def __prepare_scriptable__(self) -> Any:
        made: Any = object.__new__(self.unfused)
        own = {name: value for name, value in self.__dict__.items() if name != "_plan"}
        object.__setattr__(made, "__dict__", own)
        return made


def _forward(block: Any, args: Any, kwargs: Any) -> Any:
    """The forward pass of a block: its class' own, on a stand-in with other modules."""
    kind = block.unfused
    if torch.compiler.is_compiling() and _is_sequence(kind) and len(args) == 1 and not kwargs:
        return _compiled(args[0], (*block._modules.values(),))
    if (
        block.training
        or torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or exports_onnx()
        or any(isinstance(x, fx.Proxy) for x in args)
        or any(isinstance(x, fx.Proxy) for x in kwargs.values())
    ):
        return kind.forward(block, *args, **kwargs)
    own = block.__dict__
    plan = own.get("_plan")
    if (
        plan is None
        or plan.traced != (*own["_modules"].values(),)
        or plan.settings != _settings(block)
    ):
        plan = own["_plan"] = _Plan(block)
    standing = object.__new__(kind)
    held = {**own, "_modules": plan.modules}
    object.__setattr__(standing, "__dict__", held)
    made = kind.forward(standing, *args, **kwargs)
    for name, value in held.items():  # what the forward pass has set
        if name != "_modules" and own.get(name, _MISSING) is not value:
            own[name] = value
    return made


def _is_sequence(kind: Any) -> bool:
    """Whether a class calls its modules one after the other, as ``nn.Sequential`` does."""
    return (
        issubclass(kind, nn.Sequential)
        and kind.forward is nn.Sequential.forward
        and kind.__iter__ is nn.Sequential.__iter__
    )


def _compiled(input: Any, modules: tuple[Any, ...]) -> Any:
    """The forward pass of a sequence, for a compiler."""
    k = 0
    while k < len(modules):
        together = modules[k : k + length(modules, k)]
        k += len(together)
        alone = len(together) == 1 or is_transformed() or exports_onnx()
        if not alone and is_fusible(input, *together):
            input = by_operator(input, *together)
        else:
            for module in together:
                input = module(input)
    return input


def runs(block: nn.Module) -> list[Run]:
    """The modules of ``block`` that may be one kernel, each the only one to take what the last one
    made. An activation may be called elsewhere, too."""
    children = block._modules
    if _is_sequence(getattr(block, "unfused", type(block))):
        own, modules = (*children,), (*children.values(),)
        counts = ((k, length(modules, k)) for k in range(len(modules)))
        return [Run(own[k : k + count]) for k, count in counts if count > 1]
    if not any(length([a, b], 0) > 1 for a in children.values() for b in children.values()):
        return []
    graph = _graph(block)
    if graph is None:
        return []
    calls: dict[str, list[fx.Node]] = {}
    for node in graph.nodes:
        if node.op in ("call_module", "get_attr"):
            calls.setdefault(str(node.target).split(".")[0], []).append(node)
    kinds = {
        node: children[name]
        for name, nodes in calls.items()
        if all(_is_call(node) and node.target == name for node in nodes)
        for node in nodes
    }
    found, summed = [], set[fx.Node]()
    for node, module in kinds.items():
        if type(module) in CONVOLUTIONS and len(calls[str(node.target)]) == 1:
            run = _run_from(node, kinds, calls, summed)
            if run is not None:
                found.append(run)
    return found


def _is_call(node: fx.Node) -> bool:
    """Whether a module is called, of one argument."""
    return node.op == "call_module" and len(node.args) == 1 and not node.kwargs


def _run_from(
    first: fx.Node, kinds: dict[fx.Node, Any], calls: dict[str, list[fx.Node]], summed: set[fx.Node]
) -> Run | None:
    """What begins with a convolution. ``kinds`` are the modules by their calls, ``summed`` the sums
    that others have taken."""
    norm = _user(first)
    if norm is None or not is_norm(kinds.get(norm)) or len(calls[str(norm.target)]) > 1:
        return None
    names, passing, behind, adds = [str(first.target), str(norm.target)], [], [], False
    node = None if acts(kinds[norm]) else _user(norm)
    last = norm
    while node is not None:
        module = kinds.get(node)
        if type(module) is nn.Identity:
            behind.append(str(node.target))
        elif not adds and node not in summed and _adds(node, last) and _is_own(first, kinds):
            adds = True
            summed.add(node)
            passing += behind
            behind.clear()
        else:
            if activation_step(module):
                names.append(str(node.target))
                passing += behind
            break
        last, node = node, _user(node)
    return Run(tuple(names), tuple(passing), adds)


def _user(node: fx.Node) -> fx.Node | None:
    """What alone takes the result of a node."""
    return next(iter(node.users)) if len(node.users) == 1 else None


def _adds(node: fx.Node, to: fx.Node) -> bool:
    """Whether a node adds something to another one, in place or not: traced, both look alike, so
    that what is added is the second operand."""
    sums = node.op == "call_function" and node.target in (operator.add, operator.iadd)
    return sums and len(node.args) == 2 and node.args[0] is to is not node.args[1]


def _is_own(convolution: fx.Node, kinds: dict[fx.Node, Any]) -> bool:
    """Whether nobody else has what a convolution reads, which then is the same when it is read
    later: it was made by another convolution or normalisation, and activated at most."""
    node: Any = convolution.args[0]
    while isinstance(node, fx.Node) and len(node.users) == 1 and node in kinds:
        module = kinds[node]
        if is_norm(module) or type(module) is nn.Conv2d or type(module) in CONVOLUTIONS:
            return True
        if not activation_step(module) and type(module) is not nn.Identity:
            return False
        node = node.args[0]
    return False


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True


class _Called(nn.Module):
    """What has no attributes: it can be called and no more."""


def _graph(block: nn.Module) -> fx.Graph | None:
    """What the forward pass does in evaluation mode; None where that cannot be traced, or where it
    does something else with modules that have no attributes and other classes."""
    kind: Any = getattr(block, "unfused", type(block))
    children = block._modules
    called = {name: m and (_Called() if _takes_part(m) else m) for name, m in children.items()}
    found = []
    for modules in (children, called):
        standing = object.__new__(kind)
        own = {**block.__dict__, "training": False, "_modules": dict(modules)}
        object.__setattr__(standing, "__dict__", own)
        try:
            found.append(_Tracer().trace(standing))
        except Exception:  # whatever a forward pass does with what is no tensor
            return None
    one, other = found
    return one if str(one) == str(other) else None


def _takes_part(module: nn.Module) -> bool:
    return type(module) in CONVOLUTIONS or is_norm(module) or bool(activation_step(module))


def _settings(block: nn.Module) -> list[Any]:
    return [x for x in block.__dict__.values() if isinstance(x, _SETTINGS)]


@cache
def fused(kind: Any) -> type:
    """The class of which a module of ``kind`` becomes."""

    @functools.wraps(kind.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _forward(self, args, kwargs)

    names = {"unfused": kind, "forward": forward, "__module__": __name__, "__doc__": kind.__doc__}
    return type(f"Fused{kind.__name__}", (FusedBlock, kind), names)


def _empty(kind: type) -> Any:
    """A module of the class for ``kind``, which its state is still to be put into."""
    made: Any = fused(kind)
    return made.__new__(made)


def can_fuse(module: nn.Module) -> bool:
    """Whether a module's forward pass hands a convolution of ours to its normalisation alone."""
    kind: Any = type(module)
    return (
        not isinstance(module, (FusedBlock, torch.jit.ScriptModule, fx.GraphModule))
        and (_is_sequence(kind) or not isinstance(module, nn.Sequential))
        and kind.__call__ is nn.Module.__call__
        and "forward" not in vars(module)
        and bool(runs(module))
    )


def fuse(module: nn.Module) -> None:
    """Let a module that :func:`can_fuse` do so."""
    kind: Any = type(module)
    module.__class__ = fused(kind)


def unfuse(module: nn.Module) -> None:
    """Make it what it was."""
    if isinstance(module, FusedBlock):
        module.__dict__.pop("_plan", None)
        module.__class__ = module.unfused


def followers(module: nn.Module) -> dict[nn.Module, tuple[tuple[str, str], ...]]:
    """By convolution, the names in ``module`` and the classes of the modules that it takes along; a
    sum has no name."""
    if not isinstance(module, FusedBlock):
        return {}
    found = {}
    for run in runs(module):
        modules: list[Any] = [module._modules[name] for name in run.names]
        named = [(n, type(m).__name__) for n, m in zip(run.names, modules, strict=True)]
        found[modules[0]] = (named[1], *([("", "sum")] if run.adds else []), *named[2:])
    return found
