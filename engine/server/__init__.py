"""HTTP server, OpenAI endpoints, metrics and the command line."""
