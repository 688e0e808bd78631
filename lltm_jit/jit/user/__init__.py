"""What the user meets: settings, errors, progress, and how a build is cancelled."""
