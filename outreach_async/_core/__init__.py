"""Requests to the service, and the meaning of its responses. Nothing here waits."""
