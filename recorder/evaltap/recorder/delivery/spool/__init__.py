"""The local log in front of Kafka, and the thread that forwards it to the topic."""
