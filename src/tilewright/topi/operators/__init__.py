"""What can be computed: one file an operator, which knows nothing of how it is scheduled."""

from tilewright.topi.operators.attention import Attention
from tilewright.topi.operators.conv import Conv
from tilewright.topi.operators.conv3d import Conv3d
from tilewright.topi.operators.conv_program import ConvProgram
from tilewright.topi.operators.gemm import Gemm
from tilewright.topi.operators.mlp import Mlp
from tilewright.topi.operators.program import Program

__all__ = ["Attention", "Conv", "Conv3d", "ConvProgram", "Gemm", "Mlp", "Program"]
