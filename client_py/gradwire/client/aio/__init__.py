"""The async clients, one module a service. The sync ones are generated from these."""
