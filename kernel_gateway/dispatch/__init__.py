"""From a request and a kernel to one Invoke and back."""
