"""The commands: each is a function with its options and its help, which imports what it works with when it runs."""
