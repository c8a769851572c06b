"""Addresses in shared memory as instructions of PTX take them: 32 bits."""

from __future__ import annotations


def shared_address(pointer: str, offset: str = "") -> str:
    """What lies ``offset`` elements behind ``pointer``, where a swizzle of its memory has put it.

    ``pointer`` is a :class:`~tilewright.target.instruction.Pointer` where its memory is swizzled:
    such memory begins at a multiple of what the swizzle repeats after, so that bits of an offset
    are those of the address.

    >>> from tilewright.target.instruction import Pointer
    >>> shared_address(Pointer("&S[x]"), "y")
    '(unsigned)__cvta_generic_to_shared(&S[x] + y)'
    >>> shared_address(Pointer("S", 64))
    'swizzled_address<48>(__cvta_generic_to_shared(S))'
    """
    plain = f"__cvta_generic_to_shared({pointer}{f' + {offset}' if offset else ''})"
    width = getattr(pointer, "swizzle", 0)
    return f"swizzled_address<{width - 16}>({plain})" if width else f"(unsigned){plain}"


#: The function that the text above needs.
SWIZZLED_ADDRESS = """template <unsigned Mask>
static __device__ __forceinline__ unsigned swizzled_address(size_t address) {
  return (unsigned)address ^ ((unsigned)address >> 3 & Mask);
}"""
