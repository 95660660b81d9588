"""A doctor for job queues in PostgreSQL tables."""

__version__ = "0.1.0"
