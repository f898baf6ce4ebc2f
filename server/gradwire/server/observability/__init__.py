"""What an operator sees: logs and metrics."""
