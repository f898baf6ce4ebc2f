"""HTTP doors onto the same domain."""
