"""What the GRPO demo is made of: its server, its task, its rollouts, and what it shows."""
