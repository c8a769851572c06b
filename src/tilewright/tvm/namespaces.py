"""Headings like ``tvm.nd``, and what is said of names of TVM's that are not here."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

#: Instead of those that describe whole models.
_MODELS = (
    'declare operators with te.compute or tvm.topi; whole models are tilewright.load("m.onnx") and '
    'torch.compile(model, backend="tilewright")'
)
#: What does the work of names of TVM's that are not here.
_INSTEAD = {
    "Schedule": "s = te.create_schedule(C.op), whose stages have the primitives",
    "contrib": "declare operators with te.compute or tvm.topi, for the target cuda or llvm",
    "evaluate": "te.extern takes a statement or an expression",
    "make": "use the functions of te: te.if_then_else, te.const",
    "meta_schedule": "tvm.autotvm tunes templates",
    "micro": "kernel.export_c(path) writes a C file that stands alone",
    "placeholders": "use te.placeholder",
    "ir_pass": "tvm.lower runs all passes, and `tilewright lower FILE` shows them one by one",
    "relax": _MODELS,
    "relay": _MODELS,
    "download": "read the file as it is; models are loaded by tilewright.load",
    "tvmc": "`tilewright run`, `tilewright compile` and `tilewright tune` take models and problems",
    "script": "str(tvm.lower(s, args)) is the script of a program; programs are written in te",
}
#: Those that are modules: a program may import them, and gets an error where it uses them.
_MODULES = (
    "contrib.cublas", "contrib.cudnn", "contrib.graph_executor", "meta_schedule",
    "micro", "relax", "relay", "script", "script.ir", "script.tir",
)  # fmt: skip
#: How many names are listed; of more, those that are near.
_FEW = 12


def missing(namespace: str, name: str, known: Sequence[str]) -> AttributeError:
    """The error for ``name`` that a namespace lacks: what to use, or what is near."""
    if name in _INSTEAD:
        return AttributeError(f"Tilewright has no {namespace}.{name}: {_INSTEAD[name]}")
    near = difflib.get_close_matches(name, known, 3)
    hint = (
        f"; did you mean {' or '.join(near)}?" if near else f": dir({namespace}) lists what it has"
    )
    if not near and len(known) <= _FEW:
        hint = f"; it has {', '.join(known)}"
    return AttributeError(f"Tilewright's {namespace} has no {name!r}{hint}")


class Namespace(ModuleType):
    """A module of TVM's, to import from too; a name that it lacks is an error that says what to
    use."""

    def __init__(self, namespace: str, **names: Any) -> None:
        super().__init__(f"tilewright.tvm.{namespace}")
        self.__dict__.update(names, _namespace=namespace, __path__=[])
        sys.modules[self.__name__] = self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        known = sorted(k for k in self.__dict__ if not k.startswith("_"))
        raise missing(f"tvm.{self._namespace}", name, known)

    def __repr__(self) -> str:
        return f"<tilewright.tvm.{self._namespace}>"


class Absent(Namespace):
    """A module of TVM's without counterpart: it is imported, and each of its names is an error that
    says what to use."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        mend = _INSTEAD[self._namespace.rpartition(".")[0] or self._namespace]
        raise AttributeError(f"Tilewright has no tvm.{self._namespace}.{name}: {mend}")


class _Finder:
    """Says of modules to import below a namespace what is said of its names."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        head, _, below = name.rpartition(".")
        namespace = sys.modules.get(head)
        if isinstance(namespace, Namespace) and not below.startswith("_"):
            try:
                getattr(namespace, below)
            except AttributeError as error:
                # Without a name: `from namespace import below` passes over one of its own.
                raise ModuleNotFoundError(str(error)) from None


sys.meta_path.append(_Finder)
absent = {name: Absent(name) for name in _MODULES}
for _name in absent:
    _head, _, _below = _name.rpartition(".")
    if _head in absent:
        vars(absent[_head])[_below] = absent[_name]


class Constructor:
    """A class of TVM's that is made otherwise here; ``isinstance`` knows it all the same."""

    def __init__(self, cls: type, make: Callable[..., Any], **methods: Any) -> None:
        self.cls, self.make, self.methods = cls, make, methods

    def __call__(self, *args: Any, **more: Any) -> Any:
        return self.make(*args, **more)

    def __instancecheck__(self, thing: object) -> bool:
        return isinstance(thing, self.cls)

    def __getattr__(self, name: str) -> Any:
        if name in self.methods:
            return self.methods[name]
        return getattr(self.cls, name)
