"""The competitors, each written as its users would write it. No library is imported before it is measured."""
