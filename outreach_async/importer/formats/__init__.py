"""One module per format. Each turns bytes into records, and knows nothing about fields."""
