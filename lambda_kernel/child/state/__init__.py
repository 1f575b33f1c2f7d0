"""The session's variables: restored when they are read, stored when they changed."""
