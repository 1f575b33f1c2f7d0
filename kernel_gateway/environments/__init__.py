"""What an execution environment is, and the handler archive it runs."""
