"""What an observation is collected from, a module for each source; pgqdoctor.collect runs them in turn."""
