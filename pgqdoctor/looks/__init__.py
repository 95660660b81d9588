"""The bounded one-time looks at one queue, a module for each kind; pgqdoctor.bounded takes them in turn."""
