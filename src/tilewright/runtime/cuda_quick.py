"""Short launches for PyTorch's calls: what may change from call to call is looked up, and no more.

Several kernels' calls, one after another, may be one launch: the host is in the driver once, and
what they hand on lies with their workspaces in one block of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from tilewright.ir.errors import TilewrightError
from tilewright.runtime.cuda_call import Kernel, make_call
from tilewright.runtime.cuda_driver import device_count
from tilewright.runtime.cuda_maps import TensorMaps
from tilewright.runtime.torch_memory import allocator, lowest_address, refuse_addresses

#: Workspaces begin at multiples of this many bytes, as the driver's and torch's own memory does.
_ALIGNMENT = 512

#: Launches on addresses, on torch's current stream.
Launch = Callable[[tuple[int, ...]], None]


@dataclass(frozen=True)
class Part:
    """Kernels on one device, for given extents.

    Attributes
    ----------
    kernels : they number the addresses of arrays, of workspaces and of maps, then ``words``.
    scalars, words : the extents, and what kernels are given of them.
    arrays : how many there are.
    workspaces : bytes of each.
    alignment : what every address has to be a multiple of.
    owner : who keeps the kernels loaded.
    """

    kernels: tuple[Kernel, ...]
    scalars: tuple[int, ...]
    words: tuple[int, ...]
    arrays: int
    workspaces: tuple[int, ...]
    maps: TensorMaps
    alignment: int
    ordinal: int
    owner: Any


def quick(
    parts: Sequence[Part],
    takes: Sequence[Sequence[int]],
    addresses: int,
    torch: Any,
    otherwise: Launch,
    temporaries: Sequence[int] = (),
) -> Launch:
    """A launch of ``parts``, all on one device, in this order.

    Parameters
    ----------
    takes : of each part, which addresses its arrays have: of those that are given, by number, and
        then of the temporaries.
    addresses : how many will be given.
    otherwise : does it where an address is not aligned, and where the driver refuses: in a thread
        that has no context yet, or another one; it says why where it cannot either.
    temporaries : bytes of memory between the parts.
    """
    ordinal = parts[0].ordinal
    spaces = [*temporaries, *(n for part in parts for n in part.workspaces)]
    described, call = _numbered(parts, takes, addresses, len(temporaries), len(spaces))
    stream = torch._C._cuda_getCurrentRawStream

    lowest = lowest_address()

    def launch(pointers: tuple[int, ...]) -> None:
        for p in pointers:
            if p < lowest:
                refuse_addresses(pointers, ())
        if call(stream(ordinal), pointers):
            otherwise(pointers)

    starts, size = _starts(spaces)
    workspace = allocator(torch, (size,), (1,), torch.uint8, torch.device("cuda", ordinal))

    def launch_with_more(pointers: tuple[int, ...]) -> None:
        for p in pointers:
            if p < lowest:
                refuse_addresses(pointers, ())
        given = pointers
        if starts:
            held = workspace()  # until all is launched
            base = held.data_ptr()
            given = (*given, *[base + at for at in starts])
        storages = []  # held, too
        for storage_of, own, scalars in described:
            try:
                storage = storage_of(own(given), scalars)
            except TilewrightError:  # there is no map of what is not aligned
                otherwise(pointers)
                return
            storages.append(storage)
            given += storage.addresses
        if call(stream(ordinal), given):
            otherwise(pointers)

    one = launch_with_more if starts or described else launch
    if device_count() == 1:
        return one
    device = torch._C._cuda_getDevice

    def launch_here(pointers: tuple[int, ...]) -> None:
        if device() == ordinal:
            one(pointers)
        else:
            otherwise(pointers)

    return launch_here


def _numbered(
    parts: Sequence[Part],
    takes: Sequence[Sequence[int]],
    addresses: int,
    temporaries: int,
    spaces: int,
) -> tuple[list[tuple[Any, Callable[[Any], Any], tuple[int, ...]]], Callable[..., int]]:
    """How to describe what parts have maps of, and the call, whose addresses are those given, then
    temporaries and workspaces, then maps."""
    space, a_map = addresses + temporaries, addresses + spaces
    total = a_map + sum(len(part.maps) for part in parts)
    kernels: list[Kernel] = []
    words: list[int] = []
    described: list[tuple[Any, Callable[[Any], Any], tuple[int, ...]]] = []
    for part, own in zip(parts, takes, strict=True):
        memory = [*own, *range(space, space + len(part.workspaces))]
        space += len(part.workspaces)
        numbers = [*memory, *range(a_map, a_map + len(part.maps))]
        a_map += len(part.maps)
        numbers += range(total + len(words), total + len(words) + len(part.words))
        words += part.words
        for kernel in part.kernels:
            parameters = [numbers[p] for p in kernel.parameters]
            structures = [numbers[p] for p in kernel.structures]
            kernels.append(replace(kernel, parameters=parameters, structures=structures))
        if part.maps:
            described.append((part.maps.storage, _picking(memory), part.scalars))
    return described, make_call(kernels, total, words, max(part.alignment for part in parts))


def _picking(numbers: Sequence[int]) -> Callable[[Any], Any]:
    """What takes of a tuple those of these numbers."""
    if len(numbers) > 1:
        return itemgetter(*numbers)
    return lambda given: tuple(given[k] for k in numbers)


def join(
    launches: Sequence[Launch],
    takes: Sequence[Sequence[int]],
    addresses: int,
    torch: Any,
    temporaries: Sequence[int] = (),
) -> Launch | None:
    """One launch for several, as :func:`quick` has it; None where they are not all such.

    It does what they do in this order, and by themselves what it cannot.
    """
    parts = [part_of(launch) for launch in launches]
    if any(part is None for part in parts) or len({part.ordinal for part in parts if part}) != 1:
        return None
    whole = [part for part in parts if part is not None]
    device = torch.device("cuda", whole[0].ordinal)

    def one_by_one(pointers: tuple[int, ...]) -> None:
        held = [torch.empty(n, dtype=torch.uint8, device=device) for n in temporaries]
        given = (*pointers, *(t.data_ptr() for t in held))
        for launch, own in zip(launches, takes, strict=True):
            launch(tuple(given[k] for k in own))

    return quick(whole, takes, addresses, torch, one_by_one, temporaries)


def made_of(part: Part, torch: Any, otherwise: Launch) -> Launch:
    """The launch of a part alone, which :func:`join` can take."""
    made = quick([part], [range(part.arrays)], part.arrays, torch, otherwise)
    vars(made)["part"] = part
    return made


def part_of(launch: Launch) -> Part | None:
    """What a launch is of; None where :func:`made_of` did not make it."""
    found: Part | None = getattr(launch, "part", None)
    return found


def _starts(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where workspaces begin in memory that holds them all, and how much that is, in bytes."""
    starts, end = [], 0
    for size in sizes:
        starts.append(end)
        end += -(-size // _ALIGNMENT) * _ALIGNMENT
    return starts, end
