"""For users: say how an object that pickle cannot store comes back in the next cell.

    from lambda_kernel.rehydrators import NotCarried, rehydrator

    @rehydrator("mylib.Connection")
    def carry(connection):
        if connection.busy:
            raise NotCarried("its request is not answered", "{name}.wait()")
        return mylib.connect, (connection.url,)

A package names its functions in the entry point group ``lambda_kernel.rehydrators``:
``"mylib.Connection" = "mylib.cells:carry"``.
"""

from lambda_kernel.child.rehydrators.registry import NotCarried, rehydrator

__all__ = ["NotCarried", "rehydrator"]
