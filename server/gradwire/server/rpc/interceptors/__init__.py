"""What happens around every call, from the outside in: errors, telemetry, admission, auth, rules."""
