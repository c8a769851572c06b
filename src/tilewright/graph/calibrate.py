"""A model in 8 bits: ranges of its activations on samples, and what stays in float."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.graph.errors import ModelError
from tilewright.graph.executor import Executor
from tilewright.graph.graph import Graph
from tilewright.graph.passes.quantize_products import (
    Quantization,
    activations,
    candidates,
    keys,
)
from tilewright.graph.pipeline import optimized, prepared
from tilewright.graph.rehearsal import Rehearsal, relative
from tilewright.graph.rewrite import PRODUCTS
from tilewright.graph.signature import arrays
from tilewright.graph.value import Value
from tilewright.ir.errors import TargetError
from tilewright.target import Target
from tilewright.tune.machine import machine

if TYPE_CHECKING:
    from tilewright.graph.model import Model

Arrays = Mapping[str, Any]

#: Samples on which what each product changes by itself is measured.
_FEW = 4


def calibrated(
    model: Model, samples: Iterable[Any], budget: float | None, percentile: float = 100.0
) -> Quantization:
    """What :class:`~tilewright.graph.Model` needs to compute in int8.

    ``samples`` are what :meth:`Model.run` takes, or arrays for models of one input. With a
    ``budget``, products go back to float until the outputs of all samples together are within this
    relative error (the norm of the difference by that of the outputs in float): those first that
    change the outputs most where they alone are in 8 bits. The range of a value holds that
    ``percentile`` of its sizes in each sample; larger ones are clipped. Raises
    :class:`ModelError` without samples, for what no range is measured of, and for a percentile
    below 50 or above 100. Where the device of its target is not here, all of that is measured on
    the CPU: ranges are the same.
    """
    if not _is_here(model.target):
        model = model.again(Target.parse("llvm"))
    given = [_sample(model, x) for x in samples]
    if not given:
        raise ModelError("dtype int8 needs samples: calibration=[x, ...], arrays as run takes them")
    if budget is not None and not budget > 0:
        raise ModelError(f"a budget is a relative error above 0, not {budget}")
    if not 50 <= percentile <= 100:
        raise ModelError(f"a percentile is from 50 to 100, not {percentile}")
    known = _Samples(model, given, percentile)
    found = Quantization(known.ranges(), known.left())
    return found if budget is None else known.within(found, budget)


def _is_here(target: Target) -> bool:
    """Whether there is a device for a target."""
    try:
        machine(target, probe=False)
    except TargetError:
        return False
    return True


def _sample(model: Model, sample: Any) -> Arrays:
    names = [p.name for p in model.inputs]
    if not isinstance(sample, Mapping):
        if len(names) != 1:
            raise ModelError(f"a sample is a dictionary of {', '.join(names)}, as run takes it")
        sample = {names[0]: sample}
    try:
        found = {name: np.asarray(x) for name, x in sample.items()}
    except (TypeError, ValueError, RuntimeError) as error:
        raise ModelError(f"samples are arrays of the host: {error}") from None
    for name, x in found.items():
        if x.dtype.kind == "f" and not np.isfinite(x).all():
            raise ModelError(f"{name} is not finite in a sample: there is no range for int8")
    return found


class _Samples:
    """What a model in float computes of samples."""

    def __init__(self, model: Model, samples: list[Arrays], percentile: float) -> None:
        self._model, self._samples, self._percentile = model, samples, percentile

    def ranges(self) -> dict[str, float]:
        """By :func:`~tilewright.graph.passes.quantize_products.keys` the largest sizes, or those
        that are larger than all others but few."""

        def largest(graph: Graph) -> dict[str, Value]:
            names = keys(graph)
            found = activations(graph, set(candidates(graph)))
            return {names[x]: x for x in found}

        found: dict[str, float] = {}
        for values in self._measured(largest):
            for name, x in values.items():
                size = float(np.abs(x).max(initial=0))
                if not np.isfinite(size):
                    raise ModelError(f"{name} is {size} on a sample: there is no range for int8")
                if self._percentile < 100 and x.size:
                    size = float(np.percentile(np.abs(x), self._percentile)) or size
                found[name] = max(found.get(name, 0.0), size)
        return found

    def left(self) -> dict[str, str]:
        """By key, why products are not quantised at all."""
        graph = prepared(self._model.graph(self._samples[0]))
        names, able = keys(graph), set(candidates(graph))
        products = [n for n in graph.nodes if n.operator in PRODUCTS and n not in able]
        return {names[n]: "its weights are not known, or no floats" for n in products}

    def _measured(
        self, of: Callable[[Graph], dict[str, Value]]
    ) -> Iterable[dict[str, np.ndarray[Any, Any]]]:
        """What is made of the values of a graph, for each sample."""
        built: dict[Any, Executor] = {}
        for sample in self._samples:
            given = arrays(self._model.inputs, sample, self._model.device)
            key = self._model.key(given)
            if key not in built:
                graph = prepared(self._model.graph(sample))
                outputs = of(graph)
                if not outputs:
                    return
                whole = Graph(graph.name, graph.inputs, outputs)
                # Without a target, so that no output is turned from its layout.
                made = optimized(whole)
                built[key] = Executor(made, self._model.target, capture=False)
            yield built[key].run(given)

    def within(self, found: Quantization, budget: float) -> Quantization:
        """The same with as few products in float as the budget needs."""
        rehearsals = list(self._rehearsals())
        floats = [rehearsal.run(given, None) for rehearsal, given in rehearsals]

        def error(known: Quantization, samples: int | None = None) -> float:
            made = [rehearsal.run(given, known) for rehearsal, given in rehearsals[:samples]]
            return relative(made, floats[:samples])

        names = rehearsals[0][0].names
        alone = {
            n: error(replace(found, kept=dict.fromkeys({*names} - {n}, "")), _FEW) for n in names
        }
        worst = sorted(names, key=lambda name: -alone[name])

        def kept(count: int) -> Quantization:
            why = {n: f"by itself it changes the outputs by {alone[n]:.2g}" for n in worst[:count]}
            return Quantization(found.ranges, {**found.kept, **why})

        low, count = -1, 0
        while not error(kept(count)) <= budget and count < len(worst):
            low, count = count, min(len(worst), max(1, 2 * count))
        while count - low > 1:  # fewer may do
            middle = (low + count) // 2
            low, count = (low, middle) if error(kept(middle)) <= budget else (middle, count)
        while True:
            model = self._model.quantized(kept(count))
            made = relative([model.run(x) for x in self._samples], floats)
            if made <= budget or count == len(worst):
                return replace(kept(count), error=made)
            count += 1

    def _rehearsals(self) -> Iterator[tuple[Rehearsal, dict[str, Any]]]:
        """For each sample what computes it, and what it is given."""
        built: dict[Any, Rehearsal] = {}
        for sample in self._samples:
            given = arrays(self._model.inputs, sample, self._model.device)
            key = self._model.key(given)
            if key not in built:
                built[key] = Rehearsal(prepared(self._model.graph(sample)), self._model.target)
            yield built[key], given
