"""What applications write: streams, tables and windowed streams with their verbs."""
