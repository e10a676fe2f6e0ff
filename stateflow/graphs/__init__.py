"""Graphs of edges that come as a stream: degrees, connected components, neighbourhoods."""
