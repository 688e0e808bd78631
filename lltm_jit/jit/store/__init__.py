"""What is kept: builds with their records and manifests, locks, and what is removed."""
