"""The command `outreach-async`: it parses arguments, calls the library, prints and answers an exit code.

It holds no logic of its own. It needs the extra `cli`; `outreach_async.__main__` says so where that is missing.
"""
