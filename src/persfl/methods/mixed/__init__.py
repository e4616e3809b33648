"""Mixed models from sums over rows, and the default rule that is made of them."""

# losses of counts and robust ones, which are blended by working rows
OF_SCORES = ("huber", "absolute", "poisson")
# devices that what a larger fleet has in common is learned from: the standard error of a variance
# is then about 2 %
PANEL = 4000
# columns at most of models of counts or robust losses over a federation, where sums are told in
# every round
FEW = 50
# numbers at most of a model of classes that curves are told of: a curve has their squares
SMALL = 100
