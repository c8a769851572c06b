"""A schedule becomes loops, then better loops: one pass a file, one ordered list of passes."""
