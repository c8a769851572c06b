"""Search spaces and the points in them.

A configuration has an index: knob 0 is its fastest digit, as in AutoTVM, so that an index of
AutoTVM's log means the same here where the same knobs are declared in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.tune.entity import Entity, OtherOptionEntity, TuningError, entity_from_json
from tilewright.tune.space import (
    AnnotateSpace,
    OtherOptionSpace,
    ReorderSpace,
    SplitSpace,
    TransformSpace,
    VirtualAxis,
)

if TYPE_CHECKING:
    import numpy as np

Constraint = Callable[["ConfigEntity"], bool]


class Definitions:
    """What a template calls on its configuration: the ``define_`` functions.

    In a :class:`ConfigSpace` they declare, in a :class:`FallbackConfig` they choose the first, in
    a :class:`ConfigEntity` the choice is made and they do nothing.
    """

    is_fallback = False

    def _define(self, name: str, make: Callable[[], TransformSpace]) -> None:
        """Take in a knob."""

    def axis(self, extent: Any) -> VirtualAxis:
        """An axis by its extent, or by an axis of a schedule."""
        return VirtualAxis(extent)

    reduce_axis = axis

    def define_split(
        self, name: str, axis: Any, policy: str = "factors", num_outputs: int = 2, **more: Any
    ) -> list[VirtualAxis]:
        """A knob that splits an axis; see :class:`~tilewright.tune.space.SplitSpace`.

        Returns stand-ins for the new axes, to name in :meth:`define_reorder`.
        """
        axis = _only(axis)
        self._define(
            name, lambda: SplitSpace(VirtualAxis(axis), policy, num_outputs=num_outputs, **more)
        )
        return [VirtualAxis(0, f"{name}.{k}") for k in range(num_outputs)]

    def define_reorder(
        self, name: str, axes: Sequence[Any], policy: str = "all", **more: Any
    ) -> list[Any]:
        """A knob that orders axes; see :class:`~tilewright.tune.space.ReorderSpace`."""
        self._define(name, lambda: ReorderSpace(axes, policy, **more))
        return list(axes)

    def define_annotate(
        self, name: str, axes: Sequence[Any], policy: str = "none", **_: Any
    ) -> list[Any]:
        """A knob that unrolls or vectorizes; see :class:`~tilewright.tune.space.AnnotateSpace`."""
        self._define(name, lambda: AnnotateSpace(axes, policy))
        return list(axes)

    def define_knob(self, name: str, candidate: Sequence[Any]) -> None:
        """A knob of any values, read as ``cfg[name].val``."""
        self._define(name, lambda: OtherOptionSpace(candidate))

    def define_table(self, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """A knob for each of ``names``, of which only the combinations of ``rows`` are allowed.

        The first row is what is taken where nothing was tuned.
        """

    def define_constraint(self, holds: Constraint) -> None:
        """Leave out the configurations for which ``holds`` is false."""

    def multi_filter(self, filter: Constraint) -> None:
        """AutoTVM's name for :meth:`define_constraint`."""
        self.define_constraint(filter)

    def add_flop(self, flop: float) -> None:
        """Count the arithmetic of one run, for rates; the task knows it too where this is left."""

    def valid(self) -> bool:
        """Whether the template raised no error about itself."""
        return True


def _only(axis: Any) -> Any:
    if isinstance(axis, (list, tuple)):
        if len(axis) != 1:
            raise TuningError(f"define_split takes one axis, got {len(axis)}")
        return axis[0]
    return axis


class ConfigSpace(Definitions):
    """The knobs of a template and all that they can be set to.

    ``len`` counts the configurations that satisfy every constraint, and iterating gives these;
    indices run over ``range(range_length)``. ``dims`` counts the choices of each knob;
    ``guesses`` are the indices of a table in its order, which is that of what is thought best.
    """

    def __init__(self) -> None:
        self.space_map: dict[str, TransformSpace] = {}
        self.constraints: list[Constraint] = []
        self.flop = 0.0
        self.dims: tuple[int, ...] = ()
        self._rows: list[int] | None = None  # the allowed indices, where there is a table
        self.guesses: list[int] = []
        self._valid: list[int] | None = None

    # -- declaring ---------------------------------------------------------------------------

    def _define(self, name: str, make: Callable[[], TransformSpace]) -> None:
        if name in self.space_map:
            raise TuningError(f"the knob {name!r} is defined twice")
        space = make()
        if not len(space):
            raise TuningError(f"the knob {name!r} has no choice left: loosen its filter")
        self.space_map[name] = space
        self.dims = (*self.dims, len(space))
        self._valid = None

    def define_constraint(self, holds: Constraint) -> None:
        self.constraints.append(holds)
        self._valid = None

    def define_table(self, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        if self.space_map:
            raise TuningError("define_table: it must be the first that a template defines")
        for k, name in enumerate(names):
            self.define_knob(name, list(dict.fromkeys(row[k] for row in rows)))
        places = [{e: i for i, e in enumerate(s.entities)} for s in self.space_map.values()]
        points = [
            [at[OtherOptionEntity(value)] for at, value in zip(places, row, strict=True)]
            for row in rows
        ]
        self._columns = len(places)
        self.guesses = list(dict.fromkeys(self.index(point) for point in points))
        self._rows = sorted(self.guesses)
        allowed, scale = set(self._rows), self.range_length
        self.define_constraint(lambda c: c.index % scale in allowed)

    def add_flop(self, flop: float) -> None:
        self.flop += float(flop)

    def __getitem__(self, name: str) -> Any:
        """The first choice of a knob: what the template sees while it declares."""
        if name not in self.space_map:
            raise TuningError(_unknown(name, self.space_map))
        return self.space_map[name][0]

    # -- points ------------------------------------------------------------------------------

    @property
    def range_length(self) -> int:
        """How many configurations there are before constraints."""
        return math.prod(self.dims)

    def __len__(self) -> int:
        return self.range_length if not self.constraints else len(self._enumerated())

    @property
    def has_table(self) -> bool:
        """Whether its configurations are the rows of a table, which are few."""
        return self._rows is not None

    def _enumerated(self) -> list[int]:
        if self._valid is None:
            tries: Sequence[int] = range(self.range_length)
            if self._rows is not None:  # the table's knobs are the fastest digits
                scale = math.prod(self.dims[: self._columns])
                tries = [
                    r + k * scale for k in range(self.range_length // scale) for r in self._rows
                ]
            self._valid = [i for i in tries if self._holds(i)]
        return self._valid

    def _holds(self, index: int) -> bool:
        if not self.constraints:
            return True
        entity = self._at(index)
        return all(holds(entity) for holds in self.constraints)

    def is_index_valid(self, index: int) -> bool:
        """Whether ``index`` is in range and satisfies every constraint."""
        return 0 <= index < self.range_length and self._holds(index)

    def point(self, index: int) -> tuple[int, ...]:
        """The choice of each knob, by number."""
        found = []
        for dim in self.dims:
            found.append(index % dim)
            index //= dim
        return tuple(found)

    def index(self, point: Sequence[int]) -> int:
        """The inverse of :meth:`point`."""
        index, scale = 0, 1
        for digit, dim in zip(point, self.dims, strict=True):
            index += digit * scale
            scale *= dim
        return index

    def _at(self, index: int) -> ConfigEntity:
        chosen = zip(self.space_map.items(), self.point(index), strict=True)
        return ConfigEntity(index, {name: space[digit] for (name, space), digit in chosen})

    def get(self, index: int) -> ConfigEntity:
        """Configuration ``index``; raises :class:`TuningError` where there is none."""
        if not 0 <= index < self.range_length:
            raise TuningError(
                f"configuration {index} is not in a space of {self.range_length} configurations"
            )
        return self._at(index)

    def find(self, entities: Mapping[str, Entity]) -> int | None:
        """The index of the configuration with these choices, None where it is not in the space."""
        if entities.keys() != self.space_map.keys():
            return None
        point = []
        for name, space in self.space_map.items():
            if entities[name] not in space.entities:
                return None
            point.append(space.entities.index(entities[name]))
        return self.index(point)

    def __iter__(self) -> Iterator[ConfigEntity]:
        return (self._at(i) for i in self.indices())

    def indices(self) -> Iterator[int]:
        """The indices of the configurations that satisfy the constraints, ascending."""
        if self._rows is not None or self._valid is not None:
            return iter(self._enumerated())
        return (i for i in range(self.range_length) if self._holds(i))

    # -- searching ---------------------------------------------------------------------------

    def sample(
        self, count: int, rng: np.random.Generator, without: Collection[int] = ()
    ) -> list[int]:
        """At most ``count`` different random indices that are not in ``without``."""
        total = self.range_length
        few = total <= 4 * (count + len(without)) or total < 4096
        if few or self._rows is not None:
            left = [i for i in self.indices() if i not in without]
            order = rng.permutation(len(left))[:count]
            return [left[k] for k in order]
        found: dict[int, None] = {}
        for _ in range(64):
            for drawn in rng.integers(0, total, 2 * count):
                index = int(drawn)
                if index not in without and index not in found and self._holds(index):
                    found[index] = None
                    if len(found) == count:
                        return list(found)
        return list(found)

    def neighbours(self, index: int) -> list[int]:
        """The configurations that differ from ``index`` in one knob."""
        point = self.point(index)
        found = []
        for k, dim in enumerate(self.dims):
            near = [self.index((*point[:k], d, *point[k + 1 :])) for d in range(dim)]
            found += [i for i in near if i != index and self._holds(i)]
        return found

    def random_walk(self, index: int, rng: np.random.Generator) -> int:
        """A random configuration that differs from ``index`` in one knob; ``index`` if none."""
        point, dims = self.point(index), self.dims
        movable = [k for k, dim in enumerate(dims) if dim > 1]
        for _ in range(16 if movable else 0):
            k = movable[int(rng.integers(len(movable)))]
            step = int(rng.integers(1, dims[k]))
            moved = self.index((*point[:k], (point[k] + step) % dims[k], *point[k + 1 :]))
            if self._holds(moved):
                return moved
        return index

    def __repr__(self) -> str:
        lines = [f"ConfigSpace of {self.range_length:,} configurations"]
        lines += [f"  {name}: {space!r}" for name, space in self.space_map.items()]
        return "\n".join(lines)


class ConfigEntity(Definitions):
    """One configuration: a choice for each knob, ``cfg["tile_x"]``.

    Immutable; equal where the choices are. ``index`` is -1 where it comes from another space.
    """

    def __init__(self, index: int, entities: Mapping[str, Entity]) -> None:
        self.index = index
        self.entities = dict(entities)

    def __getitem__(self, name: str) -> Any:
        if name not in self.entities:
            raise TuningError(
                f"{_unknown(name, self.entities)}. The template has changed since this "
                "configuration was recorded: tune it again"
            )
        return self.entities[name]

    def get_flatten_feature(self) -> list[float]:
        """The choices as numbers, for a cost model."""
        from tilewright.tune.knob_features import entity_features

        return [x for entity in self.entities.values() for x in entity_features(entity)]

    def to_json_dict(self) -> dict[str, Any]:
        """As in AutoTVM's log."""
        chosen = [[name, e.kind, e.to_json()] for name, e in self.entities.items()]
        return {"index": self.index, "code_hash": None, "entity": chosen}

    @staticmethod
    def from_json_dict(given: Mapping[str, Any]) -> ConfigEntity:
        """The inverse; raises :class:`TuningError` for what is not one."""
        try:
            entities = {str(name): entity_from_json(kind, v) for name, kind, v in given["entity"]}
            return ConfigEntity(int(given["index"]), entities)
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise TuningError(f"{str(given)[:80]} is not a configuration: {error}") from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfigEntity) and self.entities == other.entities

    def __hash__(self) -> int:
        return hash(tuple(self.entities.items()))

    def __repr__(self) -> str:
        chosen = ", ".join(f"{name}={e!r}" for name, e in self.entities.items())
        return f"Config {self.index}: {chosen}"


class FallbackConfig(Definitions):
    """What a template gets outside of tuning: the first choice of every knob.

    ``cfg["name"] = entity`` sets another one, before or after the knob is defined.
    """

    is_fallback = True
    index = -1

    def __init__(self) -> None:
        self.entities: dict[str, Entity] = {}

    def _define(self, name: str, make: Callable[[], TransformSpace]) -> None:
        if name not in self.entities:
            space = make()
            if not len(space):
                raise TuningError(f"the knob {name!r} has no choice left: loosen its filter")
            self.entities[name] = space[0]

    def define_table(self, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        for name, value in zip(names, rows[0], strict=True):
            self.entities.setdefault(name, OtherOptionEntity(value))

    def __getitem__(self, name: str) -> Any:
        if name not in self.entities:
            raise TuningError(_unknown(name, self.entities))
        return self.entities[name]

    def __setitem__(self, name: str, entity: Entity) -> None:
        self.entities[name] = entity

    def __repr__(self) -> str:
        return f"FallbackConfig({self.entities})"


def _unknown(name: str, known: Mapping[str, Any]) -> str:
    return f"there is no knob {name!r}: there are {', '.join(known) or 'none'}"
