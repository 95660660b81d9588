"""The lab: a scratch PostgreSQL server, scenarios of sick and healthy queues, and their load."""
