"""Re-execution with a clean environment from an exec-only interpreter (standard library only)."""
