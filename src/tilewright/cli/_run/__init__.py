"""Parts of `tilewright run`."""
