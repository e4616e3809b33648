"""Adopters: which answers to take. An adopter is a function of (trust, peers, losses) to a
`Choice`.

`losses` is (T, S+1): column 0 is the loss of staying, inf is no usable answer. Ties go to the peer
that was named first, which is the same in every fleet. A target without a usable answer stays.
"""

from persfl.adopters.best import Best, BestOrStay
from persfl.adopters.topk import TopK
from persfl.adopters.weighted import Weighted

__all__ = ["Best", "BestOrStay", "TopK", "Weighted"]
