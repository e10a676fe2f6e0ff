"""Savepoints: consistent states of an application, made while it runs or stands; listed, verified, restored from."""
