"""A report as one HTML page that needs nothing beside it: style, script and charts are in it, and it asks for no address."""
