"""Where records come from a topic and go to one: sources, re-keying, sinks, and tables that every task reads whole."""
