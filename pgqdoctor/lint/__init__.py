"""Reading .sql files without a database: claims and the tables they claim from."""
