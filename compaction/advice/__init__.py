"""From a measurement and an objective to settings, reasons and other ways."""
