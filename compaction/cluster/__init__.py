"""What is asked of a Kafka cluster beyond its log: settings, sizes on disk, releases, which topics are whose."""
