"""Search spaces, tuners, measuring, records, progress."""
