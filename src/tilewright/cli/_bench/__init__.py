"""The parts of `tilewright bench`."""
