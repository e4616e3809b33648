"""Mixed models from sums over rows, and the default rule that is made of them."""

# devices that what a larger fleet has in common is learned from: the standard error of a variance
# is then about 2 %
PANEL = 4000
# numbers at most of a model of classes that curves are told of: a curve has their squares
SMALL = 100
