"""Smaller programs that fail alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def shrink(rolled: Sequence[int], fails: Callable[[list[int]], bool], tries: int) -> list[int]:
    """Fewer and smaller choices for which ``fails`` still holds, after at most ``tries`` calls."""
    best = list(rolled)

    def better(candidate: list[int]) -> bool:
        nonlocal best, tries
        if tries <= 0 or candidate == best:
            return False
        tries -= 1
        if fails(candidate):
            best = candidate
            return True
        return False

    before: list[int] = []
    while before != best and tries > 0:
        before, size = best, len(best) // 2
        while size:
            at = 0
            while at < len(best):  # without a run of choices, or with the smallest ones instead
                end = at + size
                if not better(best[:at] + best[end:]):
                    better(best[:at] + [0] * len(best[at:end]) + best[end:])
                    at = end
            size //= 2
        for at in range(len(best)):
            while at < len(best) and best[at] > 1 and better(_with(best, at, best[at] // 2)):
                pass
    return best


def _with(rolled: list[int], at: int, value: int) -> list[int]:
    return rolled[:at] + [value] + rolled[at + 1 :]
