"""Recorded cells run again, and what came out of it held against the record."""
