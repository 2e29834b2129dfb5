"""What the services share, and what people run. docs/architecture.md has a picture."""
