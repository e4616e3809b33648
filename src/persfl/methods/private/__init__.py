"""Learning together with noise on everything that leaves a device, and none at home."""
