"""What is asked for: sources, flags, and the key that both give."""
