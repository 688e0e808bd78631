"""The cache: builds with their records and stamps, locks, and pruning."""
