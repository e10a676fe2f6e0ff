"""The study of time: random logs through the operators, against an oracle of our own and Kafka Streams' test driver."""
