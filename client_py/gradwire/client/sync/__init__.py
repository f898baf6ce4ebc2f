"""The sync clients: each call runs on the process's one background loop. Generated, but for base and client."""
