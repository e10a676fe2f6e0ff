"""What connects to the world outside: files, generators, and Kafka brokers started on this machine."""
