"""The first choice that can be built, and whose threads have registers for what they hold.

How many registers a compiler takes is not known before it has compiled. What has no room it keeps
in memory, which the models of the choice do not see, and few of such schedules are fast. So one is
passed over for the next that has room, unless it was measured; those of its algorithm that hold as
much will have no more room, and are not compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar

from tilewright.ir.errors import TilewrightError

if TYPE_CHECKING:
    from tilewright.runtime.kernel import Kernel

#: How many bytes of a thread's registers in memory are too many.
SPILLED = 64
#: How many choices are looked at: the others will hardly do.
TRIES = 4


class Choosable(Protocol):
    """A choice, with the seconds that it took where it was measured, its algorithm's name, and the
    registers that a thread of it holds by a model of that, 0 without one."""

    @property
    def seconds(self) -> float | None: ...
    @property
    def name(self) -> str: ...
    @property
    def held(self) -> float: ...


Chosen = TypeVar("Chosen", bound=Choosable)
Made = TypeVar("Made")


def first_buildable(
    choices: Iterable[Chosen], build: Callable[[Chosen], Made], spills: Callable[[Made], int]
) -> tuple[Made, Chosen] | None:
    """What is built of the first choice that can be, without :data:`SPILLED` bytes of ``spills``
    where others of the first :data:`TRIES` have less; None where there are no choices.

    Raises the :class:`TilewrightError` of the first where none of them can be built.
    """
    error: TilewrightError | None = None
    spilled: tuple[Made, Chosen] | None = None
    full: dict[str, float] = {}
    for k, choice in enumerate(choices):
        if choice.seconds is not None or choice.name not in full or choice.held < full[choice.name]:
            try:
                made = build(choice)
            except TilewrightError as found:
                error = error or found
            else:
                if choice.seconds is not None or spills(made) < SPILLED:
                    return made, choice
                spilled = spilled or (made, choice)
                if choice.held:
                    full[choice.name] = choice.held
        if k + 1 == TRIES:
            break
    if spilled is None and error is not None:
        raise error
    return spilled


def spills_of(kernel: Kernel) -> int:
    """Bytes of registers that a thread of a GPU keeps in memory, in the worst of the kernels; of a
    CPU, whose stack is in its first cache, none."""
    if not kernel.program.target.is_gpu:
        return 0
    return max((r.spills or 0 for r in kernel.resources.values()), default=0)
