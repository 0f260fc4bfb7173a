"""The HTTP server: bytes to requests and answers to bytes."""
