"""Addresses in shared memory as instructions of PTX take them: 32 bits."""

from __future__ import annotations

#: The function of a text that gives a word that was loaded with others a register of its own
#: (:mod:`tilewright.codegen.registers`).
OWN = "own_register"


def shared_address(pointer: str, offset: str = "", far: str = "") -> str:
    """What lies ``offset`` and ``far`` elements behind ``pointer``, where a swizzle of its memory
    has put it.

    ``far`` is a constant once loops are written out. With what ``pointer`` knows to be one, or
    whole repetitions of the swizzle, it is kept apart from the rest, which is then the same for
    many addresses.

    ``pointer`` is a :class:`~tilewright.target.instruction.Pointer` where its memory is swizzled:
    such memory begins at a multiple of what the swizzle repeats after, so that bits of an offset
    are those of the address.

    >>> from tilewright.target.instruction import Pointer
    >>> shared_address(Pointer("&S[x]"), "y")
    'shared_address<0>(&S[x] + y, 0)'
    >>> shared_address(Pointer("&S[x + k * 8]", 64, ("&S[x]", "k * 8")), far="y")
    'shared_address<48>(&S[x], k * 8 + y)'
    """
    near, behind = getattr(pointer, "parts", None) or (pointer, "")
    place = f"{near} + {offset}" if offset else near
    mask = max(getattr(pointer, "swizzle", 0) - 16, 0)
    constant = " + ".join(part for part in (behind, far) if part) or "0"
    return f"shared_address<{mask}>({place}, {constant})"


#: The function of a text by which threads of odd rows of a fragment exchange two of their words.
EXCHANGE = "exchange_in_odd_rows"
#: Its text.
EXCHANGE_IN_ODD_ROWS = f"""static __device__ __forceinline__ void {EXCHANGE}(
    unsigned& first, unsigned& second) {{
  const bool odd = threadIdx.x >> 2 & 1;
  const unsigned kept = first;
  first = odd ? second : first;
  second = odd ? kept : second;
}}"""


#: The function that the text of :func:`shared_address` needs. A swizzle repeats after eight times
#: its width: whole ones of the offset do not change what it does.
SHARED_ADDRESS = """template <unsigned Mask, typename T>
static __device__ __forceinline__ unsigned shared_address(const T* place, int behind) {
  const unsigned near = (unsigned)__cvta_generic_to_shared(place);
  const unsigned offset = (unsigned)behind * (unsigned)sizeof(T);
  if (Mask == 0) return near + offset;
  const unsigned whole = offset / (8 * Mask + 128) * (8 * Mask + 128);
  const unsigned address = near + (offset - whole);
  return (address ^ (address >> 3 & Mask)) + whole;
}"""
