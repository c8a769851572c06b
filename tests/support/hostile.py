"""Files that somebody else wrote, or that are damaged: mutants of good ones, drawn from a seed."""

from __future__ import annotations

import json
import random
from typing import Any

#: What stands in place of a value: of other types, too deep, too large, no number.
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 10**30, 2**63, -(2**31), 1.5, 1e308, "", "x", "\0", "é" * 50, [], {}, [[]],
    [None], {"a": 1}, [1] * 500, "__import__('os')", "../../etc", "tilewright.runtime", "sim",
)  # fmt: skip
#: Texts that are no JSON, or more than JSON has.
TEXTS = (
    "", "[" * 100_000, "{" * 5_000, '{"a":' * 2_000, "[" * 40 + "]" * 40, "NaN", "-Infinity",
    "[1e999]", "1" * 5_000, '"', "\0", "null", "7", "[]", "{}", '"text"', "[[],[],[]]", "x" * 100,
)  # fmt: skip


def mutated_bytes(data: bytes, rng: random.Random) -> bytes:
    """``data`` with bits flipped, a part left out, doubled or overwritten, or all of it other."""
    made = bytearray(data)
    at = rng.randrange(len(made))
    length = rng.choice((1, 4, 64, len(made)))
    match rng.randrange(7):
        case 0 | 1:
            for _ in range(rng.choice((1, 1, 2, 30))):
                made[rng.randrange(len(made))] ^= 1 << rng.randrange(8)
        case 2:
            del made[at:]
        case 3:
            del made[at : at + length]
        case 4:
            made[at:at] = made[at : at + length]
        case 5:
            made[at : at + length] = rng.randbytes(min(length, 500))
        case 6:
            made = bytearray(rng.choice((b"", b"\0" * 1000, rng.randbytes(300), b"PK\x03\x04")))
    return bytes(made)


def mutated_json(text: str, rng: random.Random) -> str:
    """JSON with one of its values replaced, left out, or moved below others; or no JSON."""
    if rng.random() < 0.25:
        return rng.choice(TEXTS)
    whole = [json.loads(text)]
    holder: Any = whole
    key: Any = 0
    while isinstance(holder[key], (list, dict)) and holder[key] and rng.random() < 0.9:
        holder = holder[key]
        key = rng.choice(list(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
    match rng.randrange(6):
        case 0:
            del holder[key]
        case 1:
            holder[key] = [[holder[key]]]
        case 2 if isinstance(holder, dict):
            holder[rng.choice(("zzz", "", "kind"))] = holder.pop(key)
        case _:
            holder[key] = rng.choice(VALUES)
    return json.dumps(whole[0]) if whole else ""
