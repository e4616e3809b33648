"""Is learning together worth it, and who helps whom: rows kept back, rivals, trials, verdicts."""
