"""How problems are written: as JSON, as names of files, in words, as options of a command line."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, get_origin, get_type_hints

from tilewright.ir.errors import ProblemError
from tilewright.topi.epilogue import Step

if TYPE_CHECKING:
    import argparse

    from tilewright.topi.problem import Problem


@dataclass(frozen=True, kw_only=True)
class Written:
    """The values that all problems have, and how these and an operator's own are written."""

    #: What the operator is called, in records and on the command line.
    NAMES: ClassVar[tuple[str, ...]] = ()
    TYPES: ClassVar[Mapping[str, tuple[str, ...]]]

    operator: str = ""
    pass_: str = "forward"
    dtype: str = "float32"
    accumulate: str = ""
    precision: str = "exact"
    deterministic: bool = True
    out_dtype: str = ""
    epilogue: tuple[Step, ...] = ()
    constants: tuple[str, ...] = ()
    strides: tuple[str, ...] = ()

    @classmethod
    @functools.cache  # a class has few
    def own_fields(cls) -> tuple[str, ...]:
        """The names of the operator's own values."""
        common = {f.name for f in fields(Written)}
        return tuple(f.name for f in fields(cls) if f.name not in common)

    # -- as JSON -----------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it; :meth:`from_dict` reads it back."""
        made = {f.name.rstrip("_"): getattr(self, f.name) for f in fields(self)}
        made["epilogue"] = [str(step) for step in self.epilogue]
        for name in ("constants", "strides", "out_dtype"):
            if not getattr(self, name):
                del made[name]
        return {k: list(v) if isinstance(v, tuple) else v for k, v in made.items()}

    def to_short_dict(self) -> dict[str, Any]:
        """:meth:`to_dict` without what is as usual."""
        usual = {f.name.rstrip("_"): f.default for f in fields(self) if f.default is not MISSING}
        usual["accumulate"] = self.TYPES[self.dtype][0]
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in usual.items()}
        return {k: v for k, v in self.to_dict().items() if k not in plain or v != plain[k]}

    @staticmethod
    def from_dict(given: Mapping[str, Any]) -> Problem:
        """The problem of :meth:`to_dict`; raises :class:`ProblemError` for anything else."""
        from tilewright.topi.problem import operator

        # Records without an operator are those of the first that there was.
        cls = operator(str(given.get("operator", "depthwise_conv2d")))
        known = {f.name.rstrip("_"): f.name for f in fields(cls)}
        strange = sorted(set(given) - set(known))
        if strange:
            raise ProblemError(
                f"a problem has no {', '.join(strange)}: its parts are {', '.join(known)}"
            )
        try:
            return cls(**{known[k]: v for k, v in given.items()})
        except TypeError as error:
            raise ProblemError(f"a problem is incomplete: {error}") from None

    def to_json(self) -> str:
        """One line of JSON, the same for equal problems."""
        return json.dumps(self.to_dict(), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Problem:
        """The problem of :meth:`to_json`."""
        try:
            given = json.loads(text)
        except json.JSONDecodeError as error:
            raise ProblemError(f"a problem is a JSON object: {error}") from None
        if not isinstance(given, dict):
            raise ProblemError(f"a problem is a JSON object, got {text[:40]!r}")
        return Written.from_dict(given)

    def strides_of(self) -> dict[str, tuple[int, ...]]:
        """:attr:`strides` by name."""
        found = {}
        for text in self.strides:
            name, _, numbers = text.rpartition("_")
            if not re.fullmatch("[0-9]+(x[0-9]+)*", numbers):
                raise ProblemError(f"strides are written as result_12x4x1, got {text!r}")
            found[name] = tuple(map(int, numbers.split("x")))
        return found

    # -- in words ----------------------------------------------------------------------------

    @property
    def key(self) -> str:
        """A name that no other problem has, of characters that file names may have."""
        parts = [self.operator, self.pass_]
        parts += [f"{name.rstrip('_')}{joined(getattr(self, name))}" for name in self.own_fields()]
        return "-".join([*parts, *self.common_key()])

    def common_key(self) -> list[str]:
        """The part of :attr:`key` of what all operators have."""
        return [
            self.dtype, self.accumulate, self.precision,
            "deterministic" if self.deterministic else "any",
            "+".join(map(str, self.epilogue)) or "plain",
            *((f"out_{self.out_dtype}",) if self.out_dtype else ()),
            *(f"constant_{name}" for name in self.constants),
            *(f"strides_{text}" for text in self.strides),
        ]  # fmt: skip

    def __str__(self) -> str:
        text = f"{self.operator} {self.pass_} "
        own = (f"{name.rstrip('_')}={joined(getattr(self, name))}" for name in self.own_fields())
        return text + " ".join(own) + f" {self.dtype}" + self.common_text()

    @property
    def short(self) -> str:
        """:meth:`__str__` without the operator and the pass."""
        return str(self).removeprefix(f"{self.operator} {self.pass_} ")

    def common_text(self) -> str:
        """The end of the text of a problem: what is not as usual, and the epilogue."""
        usual = self.TYPES[self.dtype][0]
        text = f" sums in {self.accumulate}" if self.accumulate != usual else ""
        text += f" to {self.out_dtype}" if self.out_dtype else ""
        text += f" {self.precision}" if self.precision != "exact" else ""
        text += "" if self.deterministic else " in any order"
        text += f" of a constant {' and '.join(self.constants)}" if self.constants else ""
        text += f" at strides of {', '.join(self.strides)}" if self.strides else ""
        return text + "".join(f" + {step}" for step in self.epilogue)

    # -- as options --------------------------------------------------------------------------

    @classmethod
    def add_arguments(cls, add: Any) -> None:
        """Options of the command line for the operator's own values: ``add`` is
        ``ArgumentParser.add_argument``. By default ``--NAME`` for each field."""
        for name in cls.own_fields():
            add(f"--{name.rstrip('_').replace('_', '-')}", metavar="VALUE")

    @classmethod
    def from_arguments(cls, args: argparse.Namespace, common: Mapping[str, Any]) -> list[Any]:
        """The problems of options that :meth:`add_arguments` made; ``common`` are the other
        fields. Raises :class:`ProblemError` that names the option at fault."""
        given: dict[str, Any] = {}
        hints = get_type_hints(cls)
        for f in fields(cls):
            text = getattr(args, f.name, None)
            if f.name in cls.own_fields() and text not in (None, ""):
                option = f"--{f.name.rstrip('_').replace('_', '-')}"
                given[f.name] = _of_kind(option, numbers(text), hints[f.name])
        missing = [
            f"--{f.name.rstrip('_').replace('_', '-')}"
            for f in fields(cls)
            if f.default is MISSING and f.default_factory is MISSING and f.name not in given
        ]
        if missing:
            raise ProblemError(f"{cls.NAMES[0]} needs {', '.join(missing)}")
        return [cls(**{**common, **given})]


def numbers(text: str) -> Any:
    """A value as the command line has it: 3, (1, 2), True, or the text where it is a name.

    >>> numbers("-3"), numbers("1,2"), numbers("1x2x3x4"), numbers("true"), numbers("SAME")
    (-3, (1, 2), (1, 2, 3, 4), True, 'SAME')
    """
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    parts = text.replace(",", "x").split("x")
    if not all(re.fullmatch(" *-?[0-9]+ *", part) for part in parts):
        return text
    return int(text) if len(parts) == 1 else tuple(int(part) for part in parts)


def _of_kind(option: str, value: Any, hint: Any) -> Any:
    """A value of an option as the field has it whose type is ``hint``; raises
    :class:`ProblemError` where it is of another kind."""
    if get_origin(hint) is tuple:
        if type(value) is int:
            return (value,)
        hint, says = tuple, "numbers, such as 1x2"
    else:
        says = {int: "an integer", bool: "true or false"}.get(hint, "")
    if says and type(value) is not hint:
        raise ProblemError(f"{option} is {says}, got {joined(value)!r}")
    return value


def joined(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
