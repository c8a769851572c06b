"""Configurations as numbers: what a cost model knows without lowering anything.

Sizes enter as logarithms of base 2, also of the products of a split's inner loops, which are what
tiles are; so do the values of knobs; positions in an order as themselves. The arguments of the
task come first, so that one model can learn from several shapes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.tune.entity import (
    AnnotateEntity,
    Entity,
    OtherOptionEntity,
    ReorderEntity,
    SplitEntity,
)

if TYPE_CHECKING:
    import numpy as np

    from tilewright.tune.config import ConfigEntity, ConfigSpace
    from tilewright.tune.task import Task

_MARKS = {"none": 0.0, "unroll": 1.0, "vec": 2.0}


def _log(value: float) -> float:
    return math.copysign(math.log2(1 + abs(value)), value)


def _hash(value: Any) -> float:
    """A number that stands for a value that is none, the same in every process."""
    import zlib

    return zlib.crc32(repr(value).encode()) / 2**32


def entity_features(entity: Entity) -> list[float]:
    """As many numbers for every choice of a knob."""
    match entity:
        case SplitEntity(size):
            tiles = [math.prod(size[k:]) for k in range(1, len(size))]
            return [math.log2(max(n, 1)) for n in (*size[1:], *tiles)]
        case ReorderEntity(perm):
            return [float(perm.index(k)) for k in range(len(perm))]
        case AnnotateEntity(anns):
            return [_MARKS.get(mark, 3.0) for mark in anns]
        case OtherOptionEntity(value):
            if isinstance(value, (bool, int, float)):
                return [_log(float(value))]
            return [_hash(value)]


def tile_features(entities: Sequence[Entity]) -> list[float]:
    """The products over all splits of their innermost loops, of their next ones, and so on.

    The product of two tiles' sides is what a block of threads, or a cache, has to hold.
    """
    sizes = [e.size[1:] for e in entities if isinstance(e, SplitEntity)]
    depth = max(map(len, sizes), default=0)
    return [
        sum(math.log2(max(size[-k], 1)) for size in sizes if len(size) >= k)
        for k in range(1, depth + 1)
    ]


def argument_features(task: Task) -> list[float]:
    """The numbers among a task's arguments, as logarithms."""
    return [_log(float(v)) for v in _numbers(task.workload[1:])]


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, (bool, int, float)):
        yield float(value)
    elif isinstance(value, (list, tuple)):
        if len(value) == 3 and value[0] == "OBJECT":
            import json

            value = json.loads(value[2])
            yield from _numbers(list(value.values()) if isinstance(value, dict) else value)
        else:
            for item in value:
                yield from _numbers(item)
    elif isinstance(value, str):
        yield _hash(value)


class KnobFeatures:
    """The features of all configurations of a task, each knob's worked out once."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._knobs: list[tuple[np.ndarray, np.ndarray]] | None = None

    def __call__(self, indices: Sequence[int]) -> np.ndarray:
        """(len(indices), features) of float32."""
        import numpy as np

        space = self._task.config_space
        if self._knobs is None:
            self._head = np.asarray(argument_features(self._task), "float32")
            self._depth = max((_depth(s[0]) for s in space.space_map.values()), default=0)
            self._knobs = [self._of_knob(s.entities) for s in space.space_map.values()]
        left = np.asarray(indices, "int64" if space.range_length < 2**63 else "object")
        columns = [np.broadcast_to(self._head, (len(left), len(self._head)))]
        tiles = np.zeros((len(left), self._depth), "float32")
        for dim, (own, inner) in zip(space.dims, self._knobs, strict=True):
            digit = (left % dim).astype("int64")
            left = left // dim
            columns.append(own[digit])
            tiles += inner[digit]
        return np.concatenate([*columns, tiles], 1)

    def _of_knob(self, entities: Sequence[Entity]) -> tuple[np.ndarray, np.ndarray]:
        """Of each choice: its features, and what it adds to those of the tiles."""
        import numpy as np

        own = np.asarray([entity_features(e) for e in entities], "float32")
        inner = np.zeros((len(entities), self._depth), "float32")
        for k, entity in enumerate(entities):
            found = tile_features([entity])
            inner[k, : len(found)] = found
        return own.reshape(len(entities), -1), inner

    def of(self, task: Task, config: ConfigEntity) -> list[float] | None:
        """Of a configuration of another task of the same template; None where knobs differ."""
        space: ConfigSpace = self._task.config_space
        if config.entities.keys() != space.space_map.keys():
            return None
        row = argument_features(task)
        for name, knob in space.space_map.items():
            if type(config.entities[name]) is not type(knob[0]):
                return None
            row += entity_features(config.entities[name])
        return row + tile_features([config.entities[name] for name in space.space_map])


def _depth(entity: Entity) -> int:
    """How many loops a choice makes inside of the outermost."""
    return len(entity.size) - 1 if isinstance(entity, SplitEntity) else 0
