"""Import of ONNX models: a file a family of operators, each a table from ONNX to functions."""
