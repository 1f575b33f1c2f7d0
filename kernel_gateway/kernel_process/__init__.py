"""A kernel as a process, for whatever starts kernels by ``argv`` and a connection file.

The process runs no code of the user's: it carries messages between its ZMQ sockets and a kernel of
the gateway of a state directory, which it starts where none runs.
"""
