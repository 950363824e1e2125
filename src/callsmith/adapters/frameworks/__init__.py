"""What the adapters to agent frameworks share."""
