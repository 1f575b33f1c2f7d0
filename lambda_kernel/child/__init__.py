"""The zygote and the child: the only place where user code runs and pickles are opened."""
