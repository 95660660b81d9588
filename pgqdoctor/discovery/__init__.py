"""What tells a queue from other tables, a module for each kind of evidence; pgqdoctor.discover joins them. Pure."""
