"""Kafka: topics as sources and as sinks, the lag of a job for all the world to see, and how one is let in."""

from strandline.connectors.kafka.letters import DeadTopic, dead_topic
from strandline.connectors.kafka.security import Security, sasl, tls
from strandline.connectors.kafka.source import Kafka, kafka
from strandline.connectors.kafka.topic import KafkaTopic, kafka_topic

__all__ = ["DeadTopic", "Kafka", "KafkaTopic", "Security", "dead_topic", "kafka", "kafka_topic", "sasl", "tls"]
