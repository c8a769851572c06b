"""Pipelines, barriers and waits: what threads and queues of copies do at the same time."""
