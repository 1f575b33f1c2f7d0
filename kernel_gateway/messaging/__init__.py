"""Jupyter messages as values, and the replies that need no Invoke."""
