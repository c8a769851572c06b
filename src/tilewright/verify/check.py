"""All proofs about one kernel, in the order in which their findings are easiest to understand."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from tilewright.ir.errors import VerificationError
from tilewright.ir.func import Func
from tilewright.lower.analysis.accesses import collect
from tilewright.verify.arrivals import unarrived
from tilewright.verify.background import unawaited
from tilewright.verify.bounds import out_of_bounds
from tilewright.verify.clusters import apart
from tilewright.verify.divergence import divergent
from tilewright.verify.fences import unfenced
from tilewright.verify.finding import Finding
from tilewright.verify.initialised import uninitialised
from tilewright.verify.limits import beyond_limits
from tilewright.verify.races import races
from tilewright.verify.registers import unwritten_registers


def check(func: Func) -> list[Finding]:
    """What is wrong with a lowered kernel, or could not be proved right; empty if it is proved.

    ``func.target`` gives the limits; without it, those are not checked.
    """
    kernel = collect(func)
    return list(
        chain(
            beyond_limits(kernel),
            out_of_bounds(kernel),
            divergent(kernel),
            apart(kernel),
            races(kernel),
            unawaited(kernel),
            unarrived(kernel),
            unfenced(func),
            uninitialised(kernel),
            unwritten_registers(kernel),
        )
    )


def verify(func: Func, places: Mapping[str, str] | None = None) -> None:
    """Prove a lowered kernel in bounds, free of races and of divergent barriers, within limits.

    ``places`` are the lines where the stages are declared, by name, for the message.

    Raises :class:`VerificationError` with every finding, each with a concrete witness and a mend.
    """
    findings = check(func)
    if findings:
        count = f"{len(findings)} findings" if len(findings) > 1 else "1 finding"
        lines = [f"  - {finding}" for finding in findings]
        for stage in dict.fromkeys(stage for finding in findings for stage in finding.stages):
            if places and stage in places:
                lines.append(f"  stage {stage!r} is declared at {places[stage]}")
        listed = "\n".join(lines)
        raise VerificationError(f"kernel {func.name} was not proved correct, {count}:\n{listed}")
