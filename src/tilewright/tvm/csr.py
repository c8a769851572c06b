"""``tvm.contrib.sparse``: matrices in rows of numbers (CSR), as arrays and as inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright import te
from tilewright.tvm.machines import nd_array


class CSRNDArray:
    """A sparse matrix as three arrays; from a dense NumPy array, or ``(data, indices, indptr)``."""

    stype = "csr"

    def __init__(self, arg1: Any, device: Any = None, shape: Any = None) -> None:
        if isinstance(arg1, tuple):
            self.data, self.indices, self.indptr = arg1
            self.shape = shape
        else:
            dense = np.asarray(arg1)
            rows, columns = np.nonzero(dense)
            starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(dense)))])
            self.data = nd_array(dense[rows, columns], device)
            self.indices = nd_array(columns.astype("int32"), device)
            self.indptr = nd_array(starts.astype("int32"), device)
            self.shape = dense.shape
        self.dtype = self.data.dtype

    def numpy(self) -> Any:
        """The dense matrix."""
        made = np.zeros(self.shape, str(self.dtype))
        rows = np.repeat(np.arange(self.shape[0]), np.diff(self.indptr.numpy()))
        made[rows, self.indices.numpy()] = self.data.numpy()
        return made

    asnumpy = numpy


def array(source_array: Any, device: Any = None, shape: Any = None, stype: str = "csr") -> Any:
    """A :class:`CSRNDArray`."""
    return CSRNDArray(source_array, device, shape)


class CSRPlaceholder:
    """A sparse input (m, k) of a program: its three tensors are inputs of the kernel."""

    stype = "csr"

    def __init__(self, shape: Any, nonzeros: Any, dtype: str, name: str) -> None:
        self.shape, self.dtype, self.name = shape, dtype, name
        self.data = te.placeholder((nonzeros,), dtype, f"{name}_data")
        self.indices = te.placeholder((nonzeros,), "int32", f"{name}_indices")
        self.indptr = te.placeholder((shape[0] + 1,), "int32", f"{name}_indptr")


def placeholder(
    shape: Any, nonzeros: Any = None, dtype: Any = None, name: str = "placeholder",
    stype: str | None = None,
) -> CSRPlaceholder:  # fmt: skip
    """A :class:`CSRPlaceholder` of ``nonzeros`` numbers."""
    return CSRPlaceholder(shape, 0 if nonzeros is None else nonzeros, dtype or "float32", name)
