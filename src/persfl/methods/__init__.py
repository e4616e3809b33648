"""Complete ways to personalize, each a method."""
