"""Restoring newest first, so that keys are answered long before the restore is whole."""
