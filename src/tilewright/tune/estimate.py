"""How long a GPU program takes, guessed from its loops alone: where a search begins.

The guess is only good to tell what is clearly slow. A thread's time is the sum over what it does,
each with a latency of which unrolled code hides a part; threads beyond what keeps a large GPU busy
take turns.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.tune.loop_features import NAMES

#: Cycles of one of each in a thread, where neighbouring instructions overlap.
_CYCLES = {
    "arithmetic": 2.0, "conditions": 4.0, "barriers": 40.0, "reductions": 100.0,
    "loop_steps": 24.0,  # waits for what it loads, and jumps
    "read_local_same": 0.5, "read_local_next": 0.5, "read_local_far": 0.5,
    "read_shared_same": 4.0, "read_shared_next": 4.0, "read_shared_far": 6.0,
    "read_global_same": 6.0, "read_global_next": 6.0, "read_global_far": 12.0,
    "write_shared_same": 4.0, "write_shared_next": 4.0, "write_shared_far": 6.0,
    "write_global_same": 8.0, "write_global_next": 8.0, "write_global_far": 16.0,
}  # fmt: skip
#: Of a launch.
_LAUNCH = 3000.0
#: About how many warps run without waiting for each other, and on how many SMs.
_WARPS, _PROCESSORS = 8, 128


def cycles(features: Sequence[float]) -> float:
    """For the features of a GPU's program, as
    :func:`~tilewright.tune.loop_features.loop_features` gives them."""
    count = {name: 2.0**log - 1.0 for name, log in zip(NAMES, features, strict=True)}
    thread = float(sum(each * count[name] for name, each in _CYCLES.items()))
    warps = -(-count["threads"] // 32)
    rounds = max(1.0, warps * -(-count["blocks"] // _PROCESSORS) / _WARPS)
    return float(_LAUNCH * max(1.0, count["kernels"]) + thread * rounds)
