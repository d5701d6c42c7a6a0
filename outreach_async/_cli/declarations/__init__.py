"""The commands with their options and help. A command imports what it does when it runs, so that its help is fast."""
