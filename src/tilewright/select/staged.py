"""What the speed of schedules follows from that copy tiles of images to shared memory: what their
families say that blocks do (:class:`~tilewright.topi.gpu.staged_times.Work`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.select.counts import Array, held_apart
from tilewright.target.devices import WARP, Gpu
from tilewright.topi.columns import tile_of
from tilewright.topi.gpu.machine import ISSUE, busy, occupancy
from tilewright.topi.gpu.staged_times import WAITS, Work, written
from tilewright.topi.problem import Problem
from tilewright.topi.template import Template

#: Bytes that an SM copies in a cycle.
_COPIED = 28.0


@dataclass
class Staged:
    """Of parameter sets: the ``work`` of blocks, how many ``blocks`` there are, the tiles that each
    goes through (``turns``) and has room for (``stages``), the parameters themselves, (parameters,
    sets), and the partial sums of a result (``chunks``)."""

    work: Work
    blocks: Array
    turns: Array
    stages: Array
    tile: Array
    chunks: Array

    @classmethod
    def of(cls, p: Problem, template: Template, values: Array) -> Staged:
        """Those of a template that says what it does, (sets, parameters)."""
        assert template.work is not None
        tile = tile_of(template.config, values.T)
        work = template.work(p, tile).pick(slice(None))
        blocks, turns = work.shares(tile)
        chunks = getattr(tile, "chunks", np.ones_like(turns))
        stages = np.minimum(tile.stages, turns)
        return cls(work, blocks * work.beside, turns, stages, values.T, chunks)

    def where(self, which: Array) -> Staged:
        """Of some of the parameter sets, as NumPy indexes them."""
        counts = self.blocks, self.turns, self.stages, self.tile.T, self.chunks
        blocks, turns, stages, tile, chunks = (x[which] for x in counts)
        return Staged(self.work.pick(which), blocks, turns, stages, tile.T, chunks)

    @property
    def threads(self) -> Array:
        """Of a block, in whole warps."""
        return np.asarray(self.work.warps * WARP)

    @property
    def shared(self) -> Array:
        """Bytes of a block."""
        return np.asarray(self.stages * self.work.staged + self.work.kept)

    @property
    def held(self) -> Array:
        """Registers of a thread."""
        return np.asarray(self.work.registers)

    @property
    def code(self) -> Array:
        """Instructions of a tile, which are written out."""
        return np.asarray(self.work.issued + self.work.products)

    @property
    def kind(self) -> Array:
        """A number for the way to write the loops."""
        return self.stages

    def derived(self, moved: int, least: float, machine: Gpu, apart: bool) -> list[Array]:
        """Times against the ``least`` of a problem whose bytes are ``moved``, and how busy the
        device is."""
        k, log, sms = self.work, _log, machine.sms
        fit = np.maximum(occupancy(machine, k.warps, k.registers, self.shared), 1)
        if apart:
            fit = held_apart(fit, self.blocks, self.threads, self.chunks, machine)
        waves, most = self.blocks / (fit * sms), np.ceil(self.blocks / sms)
        whole, resident = np.ceil(waves), np.minimum(fit, most)
        issued = written(k.issued)
        cycles = self.turns * busy(k.products, k.loads, issued) + k.once * ISSUE
        copied = self.turns * k.brought / _COPIED
        waits = whole * np.where(self.stages == 1, self.turns * WAITS[0], WAITS[1])
        scale = least * machine.clock  # cycles that the problem takes at least
        return [
            log(most * k.warps * cycles / scale), log(most * copied / scale),
            log(self.blocks * self.turns * k.brought / machine.cache / least),
            log(k.moved / moved), log(waits / least),
            log(k.micros(self.turns, self.stages) / least),
            log(most * k.warps * self.turns * k.products / scale),
            log(most * k.warps * self.turns * k.loads / scale),
            log(whole * fit * k.warps * cycles / scale), log(k.warps * cycles / scale),
            log(k.warps * cycles / copied), log(issued), k.once, log(k.staged / 1024),
            log((k.kept + 1) / 1024), self.shared / 1024,
            log(resident * self.shared / machine.shared), k.registers, k.warps, fit,
            resident * k.warps / machine.warps, fit * k.warps / machine.warps, log(waves),
            np.where(waves < 8, whole / waves, 1.0),
            np.where(self.blocks < 8 * sms, most * sms / self.blocks, 1.0), log(most),
            self.turns, self.stages, log(k.line), *k.spare,
        ]  # fmt: skip


def _log(x: Any) -> Array:
    return np.asarray(np.log2(np.clip(x, 1e-3, 1e9)))
