"""Mixed models from sums over rows, and the default rule that is made of them."""
