"""One thin adapter per service: decode, call the domain, encode."""
