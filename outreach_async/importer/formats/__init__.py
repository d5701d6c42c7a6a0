"""One module a format: each turns its bytes into records, and knows nothing of fields."""
