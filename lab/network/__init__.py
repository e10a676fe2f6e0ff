"""A proxy between Kafka clients and a broker that spoils chosen requests."""
