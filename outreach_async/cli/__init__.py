"""The `outreach-async` command: it parses arguments, calls the library, prints the results and returns an exit code.

The command holds no logic of its own. It needs the extra `cli`; without it, `outreach_async.__main__` prints how to install it.
"""
