"""The serving process: holds the scoped credentials, never runs or unpickles what a user wrote."""
