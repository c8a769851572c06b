"""Arrays for a model from the command line: files, literals, shapes, random numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.ir.errors import ArgumentError

if TYPE_CHECKING:
    import numpy as np

    from tilewright.graph.signature import Parameter

    Array = np.ndarray[Any, Any]

_NAMED = re.compile(r"^([A-Za-z_][\w./-]*?)[:=](.+)$", re.DOTALL)
_SHAPE = re.compile(r"^\{?\s*\d+(\s*[x,]\s*\d+)*\s*\}?$")


def arrays(
    texts: Iterable[str], parameters: Sequence[Parameter], seed: int, option: str = "--input",
    told: Callable[[str], None] = lambda _: None,
) -> dict[str, Array]:  # fmt: skip
    """The inputs of a model by name; those that no text names are random, where an open dimension
    is what a given input has of its name, else 1: ``told`` is then called with a line that says so.
    Raises :class:`ArgumentError` for a text that is no input."""
    import numpy as np

    rng = np.random.default_rng(seed)
    by_name = {p.name: p for p in parameters}
    found: dict[str, Any] = {}
    for name, text in _parts(texts, list(by_name), option):
        found |= _read(name, text, by_name, rng, option)
    named = {
        e: extent
        for p in parameters if p.name in found
        for e, extent in zip(p.shape or (), found[p.name].shape, strict=False)
        if isinstance(e, str) and e != "?"
    }  # fmt: skip
    for p in parameters:
        if p.name not in found:
            shape = tuple(e if isinstance(e, int) else named.get(e, 1) for e in p.shape or ())
            found[p.name] = random(rng, shape, p.dtype)
            size = "x".join(map(str, shape)) or "one number"
            told(f"{p} is not given: it is {size}{_unknown(p, named)}")
    return found


def _unknown(p: Parameter, named: Mapping[str, int]) -> str:
    """Which of its dimensions are 1 for want of a word."""
    ones = [str(e) for e in p.shape or () if not isinstance(e, int) and e not in named]
    if not ones:
        return ""
    return f", {', '.join(dict.fromkeys(ones))} being 1 where nothing is said"


def _parts(texts: Iterable[str], names: list[str], option: str) -> list[tuple[str, str]]:
    """Names and what stands behind them; without a name, in the order of what is left."""
    parts = [part for text in texts for part in text.split(";") if part]
    made, taken = [], set[str]()
    for part in parts:
        match = _NAMED.match(part)
        # Names may have colons of their own, as "image:0".
        name = max((n for n in names if part.startswith((f"{n}:", f"{n}="))), key=len, default="")
        if name:
            made.append((name, part[len(name) + 1 :]))
            taken.add(name)
        elif match is not None and not Path(part).exists():
            raise ArgumentError(f"{option} {part}: there is no {match[1]}, but {', '.join(names)}")
        elif part.endswith(".npz"):
            made.append(("", part))
        else:
            rest = [n for n in names if n not in taken]
            if not rest:
                known = ", ".join(names) or "none"
                raise ArgumentError(f"{option} {part}: one more than there are, which are {known}")
            made.append((rest[0], part))
            taken.add(rest[0])
    return made


#: How the names of images end.
_IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")


def _read(
    name: str, text: str, parameters: dict[str, Parameter], rng: Any, option: str
) -> dict[str, Any]:
    import numpy as np

    if text.endswith((".npy", ".npz")):
        path = Path(text)
        try:
            found = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise ArgumentError(f"{option} {text}: it cannot be read: {error}") from None
        if not text.endswith(".npz"):
            return {name: found}
        strange = sorted(set(found.files) - set(parameters))
        if strange:
            known = ", ".join(parameters)
            raise ArgumentError(f"{option} {text}: there is no {', '.join(strange)}, but {known}")
        return {n: found[n] for n in found.files}
    kind = parameters[name].dtype
    if _SHAPE.match(text):
        shape = tuple(int(e) for e in re.findall(r"\d+", text))
        return {name: random(rng, shape, kind)}
    try:
        return {name: np.asarray(json.loads(text), kind)}
    except (ValueError, TypeError):
        wrong = f"{option} {name}:{text}"
        if text.lower().endswith(_IMAGES):
            raise ArgumentError(
                f"{wrong}: how an image becomes numbers (its size, its scale, the order of its "
                "colours) is what the model was trained with: do that to it, and np.save the array"
            ) from None
        raise ArgumentError(
            f"{wrong}: a file .npy or .npz, a shape like 1x3x224x224, or a literal like [1.0,2]"
        ) from None


def random(rng: Any, shape: tuple[int, ...], dtype: str) -> Array:
    """Normal numbers; of integers small ones that are not negative, of conditions either. Raises
    :class:`ArgumentError` where memory has no room for them."""
    from tilewright.ir.dtype import dtype as to_dtype
    from tilewright.runtime.narrow_floats import storage_type

    kind = to_dtype(dtype)
    found: Array
    try:
        if kind.is_float:
            found = rng.standard_normal(shape)
        else:
            found = rng.integers(0, 2 if kind.is_bool else 10, shape)
        return found.astype(storage_type(kind))
    except (MemoryError, ValueError) as error:
        raise ArgumentError(f"random numbers of {'x'.join(map(str, shape))}: {error}") from None
