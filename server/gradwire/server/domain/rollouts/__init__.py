"""Rollouts: what is recorded of an agent's model calls, how it ends, and the training rows that it becomes."""
