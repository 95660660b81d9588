"""The dashboard: screens that are fed an Observation and its Report, and neither query nor judge."""
