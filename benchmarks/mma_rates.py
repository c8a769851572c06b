"""How many cycles of an SM sub-partition products of 16 by 8 take, of several depths, and of
such as skip every other number of an operand (PTX ISA, "mma" and "mma.sp").

    PYTHONPATH=src python benchmarks/mma_rates.py

Warps issue fourteen independent products in turn, and read the clock before and after.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import measure

_WARPS, _CHAINS, _TURNS, _RUNS = (4, 8, 12, 16), 14, 400, 5
#: By name: the instruction, registers of A and B, and what stands behind them.
_PRODUCTS = {
    "mma m16n8k8": ("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", 2, 1, ""),
    "mma m16n8k16": ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 4, 2, ""),
    "mma.sp m16n8k16": (
        "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 2, 2, ", %9, 0x0",
    ),
    "mma.sp m16n8k32": (
        "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", 4, 4, ", %9, 0x0",
    ),
}  # fmt: skip


def kernel(name: str, instruction: str, left: int, right: int, behind: str) -> str:
    """A kernel that issues one kind of product."""
    parts = (
        "%0,%1,%2,%3",
        ",".join(f"%{4 + k % 3}" for k in range(left)),
        ",".join(f"%{6 + k % 3}" for k in range(right)),
        "%0,%1,%2,%3",
    )
    operands = ", ".join(f"{{{part}}}" for part in parts)
    return f"""
extern "C" __global__ void {name}(float* out, long long* cycles) {{
  float d[{_CHAINS}][4] = {{}};
  unsigned x = threadIdx.x, kept = 0xdddd8888u;
  __syncthreads();
  const long long start = clock64();
  for (int turn = 0; turn < {_TURNS}; ++turn) {{
    #pragma unroll
    for (int i = 0; i < {_CHAINS}; ++i)
      asm volatile("{instruction} {operands}{behind};"
          : "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
          : "r"(x), "r"(x + 1), "r"(x * 3), "r"(5u), "r"(x * 7), "r"(kept));
  }}
  const long long end = clock64();
  float sum = 0;
  for (int i = 0; i < {_CHAINS}; ++i) sum += d[i][0] + d[i][1] + d[i][2] + d[i][3];
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
  if (threadIdx.x == 0) cycles[blockIdx.x] = end - start;
}}"""


def main() -> None:
    import torch
    from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--name", default="h200_mma_rates", help="of the results")
    parser.add_argument("--out", default="benchmarks/results")
    arguments = parser.parse_args()
    device = Device()
    device.set_current()
    named = {f"k{k}": product for k, product in enumerate(_PRODUCTS.values())}
    text = "\n".join(kernel(name, *product) for name, product in named.items())
    major, minor = device.compute_capability
    options = ProgramOptions(arch=f"sm_{major}{minor}" + "a" * (major >= 9))
    module = Program(text, "c++", options).compile("cubin")
    blocks = device.properties.multiprocessor_count
    out = torch.empty(blocks * 1024, device="cuda")
    cycles = torch.empty(blocks, dtype=torch.int64, device="cuda")
    stream, rows = device.create_stream(), list[dict[str, Any]]()
    for warps in _WARPS:
        row: dict[str, Any] = {"warps": warps}
        for found, name in zip(named, _PRODUCTS, strict=True):
            config, times = LaunchConfig(grid=blocks, block=32 * warps), []
            for _ in range(_RUNS):
                launch(stream, config, module.get_kernel(found), out.data_ptr(), cycles.data_ptr())
                stream.sync()
                times.append(float(cycles.double().median()))
            row[name] = round(statistics.median(times) / (_TURNS * _CHAINS * warps / 4), 2)
        rows.append(row)
    print(measure.table(rows))
    result = {"environment": measure.environment("torch"), "rows": rows}
    print(measure.save(arguments.name, result, arguments.out))


if __name__ == "__main__":
    main()
