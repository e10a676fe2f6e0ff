"""Small applications and topics written by hand, which tests and benchmarks run on any log."""
