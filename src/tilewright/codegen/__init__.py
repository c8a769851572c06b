"""Loops become text: CUDA C++, OpenCL C, C, LLVM IR."""
