"""What was asked of a kernel and what came out, for good: the journal in the records bucket."""
