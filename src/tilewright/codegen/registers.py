"""What the text of a kernel tells ptxas about registers."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.target.instructions._shared import OWN


@dataclass(frozen=True)
class Registers:
    """What ptxas receives.

    Parameters
    ----------
    less : threads of small launches may take the registers that there are with that number of
        blocks less on an SM than it could hold; None where ptxas is to choose.
    own : whether operands that were loaded together are moved apart once, where they are loaded;
        else ptxas does so in front of each instruction, with fewer registers.
    """

    less: int | None = 0
    own: bool = True


#: One after the other, as long as registers are spilled.
WAYS = (Registers(), Registers(own=False), Registers(less=1), Registers(less=None, own=False))


def own_register(own: bool) -> str:
    """The text of :data:`OWN`. An instruction such as ``mma`` takes operands from registers next to
    one another, in which words that were loaded at once lie in another order; ptxas then copies
    them in front of every ``mma``, however often that is the same copy. It does not do so where it
    cannot know that nothing is added."""
    if not own:
        return f"#define {OWN}(word) (word)"
    return f"""static __device__ __forceinline__ unsigned {OWN}(unsigned word) {{
  unsigned lanes;  // with lower numbers: the last lane has none above
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(lanes));
  return word + (lanes >> 31);
}}"""
