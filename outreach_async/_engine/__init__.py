"""The time of requests: attempts, retries, rates, pauses, and what observers see."""
