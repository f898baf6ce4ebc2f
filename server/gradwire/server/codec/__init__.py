"""Protos to domain values and back. Knows both; decides nothing about engines."""
