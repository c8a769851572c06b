"""What the code generator hands to the compiler."""

from __future__ import annotations

from dataclasses import dataclass

#: The symbol of the function that the host calls.
ENTRY = "tw_entry"


@dataclass(frozen=True)
class Generated:
    """LLVM IR: the module, modules to be linked into it, and the symbols that it expects.

    ``plain`` code is written as it is to run: it is translated without being optimised.
    """

    text: str
    linked: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()
    plain: bool = False
