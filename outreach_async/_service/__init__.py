"""What is sent to the service, and what its responses mean. Nothing here waits."""
