"""Kernel objects without a process: queue, state table, durable records."""
