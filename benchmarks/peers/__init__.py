"""The peers, each used as its users would. No library is imported before it is measured."""
