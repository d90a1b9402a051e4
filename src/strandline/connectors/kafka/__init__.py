"""Kafka connector: topics as sources and sinks, dead letters in a topic, consumer lag, and security settings."""

from strandline.connectors.kafka.dead_letters import DeadTopic, dead_topic
from strandline.connectors.kafka.security import Security, sasl, tls
from strandline.connectors.kafka.sink_definition import KafkaTopic, kafka_topic
from strandline.connectors.kafka.source import Kafka, kafka

__all__ = ["DeadTopic", "Kafka", "KafkaTopic", "Security", "dead_topic", "kafka", "kafka_topic", "sasl", "tls"]
