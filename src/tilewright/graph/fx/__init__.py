"""PyTorch's graphs of ATen operators, as ``torch.fx`` holds them. PyTorch itself is not needed."""
