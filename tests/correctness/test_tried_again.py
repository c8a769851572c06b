"""Files of what a benchmark tried name kernels that can be built and measured again."""

from pathlib import Path

import pytest
from tests.support.benchmarks import benchmark

from tilewright.topi.templates import TEMPLATES

RESULTS = Path(__file__).parents[2] / "benchmarks/results"


@pytest.mark.parametrize(
    "name", ["h200_gpu_depthwise_plane_bands-tried", "h200_gpu_depthwise_convnext-tried"]
)
def test_every_kernel_of_a_file_is_of_a_template_and_its_parameters(name):
    tried = benchmark("gpu_depthwise").read_tried(str(RESULTS / f"{name}.jsonl.gz"))
    assert len(tried) >= 10
    for p, named in tried.items():
        assert named
        for template, values in named:
            assert vars(TEMPLATES[template].parse(values)) == values, p
