"""The OpenAI surface: chat completions, completions, models."""
