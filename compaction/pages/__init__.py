"""Measurements and recommendations as HTML that needs no other file."""
