"""Calls to outside services: bounded, tried again, several at a time."""
