"""Passes that code generators run last, each for its own kind of text."""
