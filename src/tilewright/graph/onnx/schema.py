"""A node beside what ONNX says about its operator: what it may have, and what it must have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.graph.errors import ModelError
from tilewright.graph.onnx.narrow import Narrow
from tilewright.graph.value import Value

#: ONNX's words for types of elements, where they are others than ours.
_WORDS = {
    "float32": "float", "float64": "double", "float8_e4m3fn": "float8e4m3fn",
    "float8_e5m2": "float8e5m2",
}  # fmt: skip


def check_node(
    node: Any,
    name: str,
    opset: int,
    operands: Sequence[Value | None],
    narrow: Sequence[Narrow | None],
) -> None:
    """Raises :class:`ModelError` where a node of one of ONNX's operators has

    - an attribute that the operator has not, one of another type, twice, or that refers to a
      function's parameter, or lacks one that it must have,
    - fewer or more operands or results than the operator takes and gives,
    - operands of types that it does not take, or not together.
    """
    from onnx import AttributeProto, defs

    def wrong(problem: str) -> ModelError:
        return ModelError(f"{node.op_type} {name}: {problem}")

    try:
        if node.domain in ("", "ai.onnx"):
            schema = defs.get_schema(node.op_type, opset, "")
        else:  # of which there is one version each
            schema = defs.get_schema(node.op_type, node.domain)
    except defs.SchemaError:
        raise wrong(f"there is no such operator in opset {opset}") from None
    known = schema.attributes
    for a in node.attribute:
        if a.name not in known:
            raise wrong(f"it has no attribute {a.name!r}: {', '.join(known) or 'it has none'}")
        if a.ref_attr_name:
            raise wrong(f"its attribute {a.name} is a parameter of a function, which this is not")
        if a.type != int(known[a.name].type.value):
            kind, wanted = (
                AttributeProto.AttributeType.Name(x).lower() if x in _TYPES else str(x)
                for x in (a.type, int(known[a.name].type.value))
            )
            raise wrong(f"its attribute {a.name} is of the type {kind}, and is to be {wanted}")
    names = [a.name for a in node.attribute]
    if len(set(names)) < len(names):
        raise wrong("it has an attribute twice")
    if missing := [k for k, a in known.items() if a.required and k not in names]:
        raise wrong(f"its attribute {', '.join(missing)} is missing")
    sides = (
        ("operand", node.input, schema.min_input, schema.max_input),
        ("result", node.output, schema.min_output, schema.max_output),
    )
    for what, given, least, most in sides:
        count = len(given)
        # One left out by an empty name at the end is as good as none.
        while count and not given[count - 1]:
            count -= 1
        if not least <= count <= most and not (what == "result" and count < least):
            some = f"{least}" if least == most else f"{least} to {most}"
            some = some if most < 1 << 30 else f"at least {least}"
            raise wrong(f"it has {count} {what}{'s' * (count != 1)}, and is to have {some}")
    types: dict[str, str] = {}
    constraints = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    formal = schema.inputs
    for k, (x, kind) in enumerate(zip(operands, narrow, strict=True)):
        if x is None:
            continue
        dtype = kind.name if kind is not None else x.dtype
        wanted = formal[min(k, len(formal) - 1)]
        given = f"tensor({_WORDS.get(dtype, dtype)})"
        allowed = constraints.get(wanted.type_str, [wanted.type_str])
        if given not in allowed and f"optional({given})" not in allowed:
            raise wrong(f"its operand {k} is of {dtype}, which it does not take")
        same = wanted.is_homogeneous or k < len(formal) - 1
        if same and types.setdefault(wanted.type_str, dtype) != dtype:
            others = types[wanted.type_str]
            raise wrong(f"its operand {k} is of {dtype}, and others are of {others}")


#: The numbers of types of attributes, as far as they have names.
_TYPES = range(15)
