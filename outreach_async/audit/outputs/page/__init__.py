"""A report as one self-contained HTML page: style, script and charts are inline, and the page makes no requests."""
