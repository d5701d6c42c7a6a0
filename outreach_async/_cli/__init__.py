"""The `outreach-async` command: it parses arguments, calls the library, prints the results and returns an exit code.

The command needs the extra `cli`. If the extra is missing, `outreach_async.__main__` prints how to install it.
"""
