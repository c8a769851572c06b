"""How often a thread waits for global memory, read off its machine code."""

from __future__ import annotations

import re

#: An instruction: its name, and what stands behind it.
_LINE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)\s*([^;]*);")
_REGISTER = re.compile(r"\bR(\d+)")


def rounds_of_loads(sass: str) -> list[int]:
    """Loads from global memory by how many earlier ones a thread has waited for when it issues
    them; a thread executes its instructions in order, and waits where one reads what is not there.

    >>> rounds_of_loads("/*0000*/ LDG.E R0, [R2.64] ; /*0010*/ LDG.E R1, [R2.64+4] ;"
    ...                 "/*0020*/ FADD R0, R0, R1 ; /*0030*/ LDG.E R4, [R2.64+8] ;")
    [2, 1]
    """
    loads: list[int] = []
    under_way: dict[int, int] = {}  # by register, the round of the load that fills it
    waited = 0
    for name, operands in _LINE.findall(sass):
        first, _, rest = operands.partition(",")
        read = operands if name.startswith(("ST", "RED")) else rest
        for register in map(int, _REGISTER.findall(read)):
            if register in under_way:
                waited = max(waited, under_way[register] + 1)
        target = _REGISTER.match(first.strip())
        if target is None or name.startswith(("ST", "RED")):
            continue
        filled = int(target[1])
        width = 4 if ".128" in name else 2 if ".64" in name else 1
        for register in range(filled, filled + width):
            under_way.pop(register, None)
            if name.startswith("LDG"):
                under_way[register] = waited
        if name.startswith("LDG"):
            loads += [0] * (waited + 1 - len(loads))
            loads[waited] += 1
    return loads
