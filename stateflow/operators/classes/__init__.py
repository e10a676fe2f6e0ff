"""The operator class: state declared as attributes, a method per record, timers and rounds."""
