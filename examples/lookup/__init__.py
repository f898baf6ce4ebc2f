"""What the agentic GRPO example is made of: its task, the agent that plays it, and the loop that trains it."""
