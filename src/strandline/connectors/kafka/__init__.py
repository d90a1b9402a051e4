"""Kafka: topics as sources, the lag of a job for all the world to see, and how one is let in."""

from strandline.connectors.kafka.letters import DeadTopic, dead_topic
from strandline.connectors.kafka.security import Security, sasl, tls
from strandline.connectors.kafka.source import Kafka, kafka

__all__ = ["DeadTopic", "Kafka", "Security", "dead_topic", "kafka", "sasl", "tls"]
