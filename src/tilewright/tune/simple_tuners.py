"""Tuners that learn nothing, or from generations: grid, random, genetic."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tilewright.tune.task import Task
from tilewright.tune.tuner import Pair, Tuner, check_positive


class GridSearchTuner(Tuner):
    """Every configuration in the order of indices."""

    def __init__(self, task: Task, *, seed: int | None = None) -> None:
        super().__init__(task, seed=seed)
        self._left: Iterator[int] = self.space.indices()

    def propose(self, count: int) -> list[int]:
        found: list[int] = []
        for index in self._left:
            if index not in self.visited:
                found.append(index)
                if len(found) == count:
                    break
        return found


class RandomTuner(Tuner):
    """Random configurations, each once."""

    def propose(self, count: int) -> list[int]:
        return self.space.sample(count, self.rng, self.visited.keys())


class GATuner(Tuner):
    """A genetic algorithm: the fastest configurations are crossed and mutated.

    Parameters
    ----------
    pop_size : configurations a generation.
    elite_num : how many of the fastest ever are always among the parents.
    mutation_prob : how likely each knob of a child is set at random.
    """

    def __init__(
        self,
        task: Task,
        pop_size: int = 64,
        elite_num: int = 3,
        mutation_prob: float = 0.1,
        *,
        seed: int | None = None,
    ) -> None:
        super().__init__(task, seed=seed)
        self.size = check_positive("pop_size", pop_size)
        self.elite, self.mutation = elite_num, mutation_prob
        self._queue: list[int] = []
        self._generation: list[tuple[float, int]] = []

    def propose(self, count: int) -> list[int]:
        if not self._queue:
            self._queue = self._breed()
        found, self._queue = self._queue[:count], self._queue[count:]
        return found

    def learn(self, found: Sequence[Pair]) -> None:
        self._generation += [(result.cost, inp.config.index) for inp, result in found]

    def _breed(self) -> list[int]:
        right = [(cost, i) for cost, i in self._generation if math.isfinite(cost)]
        known = sorted((c, i) for i, c in self.visited.items() if math.isfinite(c))
        parents = [i for _, i in {*right, *known[: self.elite]}]
        if len(parents) < 2:
            return self.space.sample(self.size, self.rng, self.visited.keys())
        fitness = [1.0 / self.visited[i] for i in parents]
        total = sum(fitness)
        odds = [f / total for f in fitness]
        points = [self.space.point(i) for i in parents]
        children: dict[int, None] = {}
        for _ in range(20 * self.size):
            a, b = (points[int(k)] for k in self.rng.choice(len(points), 2, p=odds))
            cut = int(self.rng.integers(0, len(a) + 1))
            child = [
                int(self.rng.integers(dim)) if self.rng.random() < self.mutation else digit
                for digit, dim in zip((*a[:cut], *b[cut:]), self.space.dims, strict=True)
            ]
            index = self.space.index(child)
            if index not in self.visited and self.space.is_index_valid(index):
                children[index] = None
                if len(children) == self.size:
                    break
        self._generation = []
        return list(children) or self.space.sample(self.size, self.rng, self.visited.keys())
