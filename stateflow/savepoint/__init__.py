"""Savepoints: a cut through a whole application, made while it runs or stands; listed, verified, and restored from."""
