"""The Jupyter gateway: speaks the messaging protocol, sends each cell to one Lambda invocation."""
