"""What outlives the process: tokens and conversations, in SQLite or PostgreSQL."""
