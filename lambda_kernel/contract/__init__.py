"""What gateway, serving process and child agree on (standard library only)."""
