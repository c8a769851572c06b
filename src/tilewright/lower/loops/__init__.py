"""Passes that rewrite loops, guards and memory."""
