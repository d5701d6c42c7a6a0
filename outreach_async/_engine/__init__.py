"""When requests are sent: attempts, retries, rates, pauses, and what observers see."""
