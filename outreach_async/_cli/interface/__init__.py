"""The commands as users see them: names, options and help. What a command does is imported when it runs."""
