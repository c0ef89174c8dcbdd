"""What makes a working copy of a model fast, and the kernels it puts in place of plain modules."""
