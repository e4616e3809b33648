"""A round on tensors: every (target, peer) pair in one batched computation, on a CPU or a GPU.

Rows are moved to the device once; models live there from round to round. What crosses back is a loss and a length per pair, from
which the adopter chooses, so a round costs one wait for the device. Targets are taken in chunks that fit into memory; where memory
runs out all the same, the chunk is halved and the round goes on.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from persfl.checks import one_of
from persfl.devices import Devices, stranger
from persfl.errors import InputError, PersflWarning, need
from persfl.fleets.home import Home, Slice
from persfl.learners.linear import ROUNDING, Linear
from persfl.proposers.gradient import GradientStep
from persfl.seeds import stream
from persfl.types import Answers, Array, Choice, IntArray

if TYPE_CHECKING:
    import torch

SHARE = 0.25  # of the free memory that one chunk may take
CPU_BYTES = 256 * 2**20
MOST_RECORDED = 64


def tensor_pairs(
    home: Home, learner: Any, proposer: Any, *, device: str, dtype: str | None, seed: int, compiled: bool
) -> TensorPairs | None:
    """The way through tensors for these parts; None where there is none and none was asked for."""
    takes = type(proposer) is GradientStep and (hasattr(learner, "slopes") or type(learner) is Linear)
    if not takes:
        if device != "cpu":
            raise InputError(f"device={device!r} needs gradient steps of Linear or Network. Got {learner!r} with {proposer!r}.")
        return None
    inside = LinearTensors(learner) if type(learner) is Linear else learner
    trouble = "" if type(learner) is Linear else _cannot_be_mapped(learner, home)
    if trouble:
        warnings.warn(
            f"this module cannot be computed for many pairs at once, so they are asked one by one: {trouble}",
            PersflWarning,
            stacklevel=4,
        )
        return None
    return TensorPairs(home, inside, proposer, device=device, dtype=dtype, seed=seed, compiled=compiled)


def _cannot_be_mapped(learner: Any, home: Home) -> str:
    """Why `torch.func.vmap` does not take this module; empty if it does."""
    import torch
    from torch.func import vmap

    features = home.static.features if home.source is None else int(home.source(0)[int(home.targets[0])].X.shape[1])
    dtype = getattr(torch, learner.dtype)
    w, X = torch.zeros((2, learner.size()), dtype=dtype), torch.zeros((2, 2, features), dtype=dtype)
    y = weight = torch.zeros((2, 2), dtype=dtype)
    try:
        vmap(learner.slopes)(w, X, y, weight + 1)
    except RuntimeError as error:
        text = str(error).strip().splitlines()[0]
        if "vmap" in str(error) or "functorch" in str(error):
            return text
        raise InputError(f"the module does not take rows of {features} features: {text}") from error
    return ""


class LinearTensors:
    """A linear learner's losses and slopes on tensors, in closed form: what `persfl.learners.linear` says, for one device."""

    dtype = "float64"

    def __init__(self, learner: Linear) -> None:
        self.learner = learner

    def _scores(self, w: torch.Tensor, X: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        d = X.shape[-1]
        W = w.view(self.learner.classes, d + self.learner.intercept)
        z = X @ W[:, :d].T
        return (z + W[:, d] if self.learner.intercept else z), W

    def losses(self, w: torch.Tensor, X: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """The weighted mean loss."""
        import torch

        z, W = self._scores(w, X)
        kind, total = self.learner.kind, weight.sum()
        if kind == "multinomial":
            each = torch.logsumexp(z, dim=1) - z.gather(1, y.long()[:, None])[:, 0]
        else:
            each = self._value(z[:, 0], y)
        value = (torch.where(weight > 0, each, 0.0) * weight).sum() / total
        if kind in ("squared", "huber"):
            value = torch.where(value < ROUNDING * (weight * y**2).sum() / total, 0.0, value)
        elif kind == "absolute":
            value = torch.where(value < ROUNDING**0.5 * (weight * y.abs()).sum() / total, 0.0, value)
        return value + self.learner.l2 * (W[:, : X.shape[-1]] ** 2).sum() if self.learner.l2 else value

    def _value(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        import torch
        from torch.nn import functional as F

        kind, delta, away = self.learner.kind, self.learner.delta, z - y
        if kind == "squared":
            return away**2
        if kind == "absolute":
            return away.abs()
        if kind == "huber":
            return torch.where(away.abs() <= delta, 0.5 * away**2, delta * (away.abs() - 0.5 * delta))
        if kind == "logistic":
            return F.softplus(z) - y * z
        return z.exp() - y * z

    def slopes(self, w: torch.Tensor, X: torch.Tensor, y: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """(size,) the gradient of `losses`."""
        import torch

        z, W = self._scores(w, X)
        kind, total = self.learner.kind, weight.sum()
        share = (weight / torch.where(total > 0, total, 1.0))[:, None]
        if kind == "multinomial":
            slope = torch.softmax(z, dim=1) - (y[:, None] == torch.arange(self.learner.classes, device=y.device)).to(z.dtype)
        else:
            slope = self._slope(z[:, 0], y)[:, None]
        pull = torch.where(share > 0, slope, 0.0) * share
        G = pull.T @ X
        if self.learner.l2:
            G = G + 2.0 * self.learner.l2 * W[:, : X.shape[-1]]
        if self.learner.intercept:
            G = torch.cat([G, pull.sum(dim=0)[:, None]], dim=1)
        return G.reshape(-1)

    def _slope(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        kind, delta, away = self.learner.kind, self.learner.delta, z - y
        if kind == "squared":
            return 2.0 * away
        if kind == "absolute":
            return away.sign()
        if kind == "huber":
            return away.clamp(-delta, delta)
        return (z.sigmoid() if kind == "logistic" else z.exp()) - y


class Rows:
    """Devices' rows as tensors: a device's are a slice, gathered for the pairs at hand."""

    def __init__(self, rows: Devices, device: Any, dtype: Any) -> None:
        import torch

        self.devices = rows
        self.X, self.y, self.weight = (torch.as_tensor(part).to(device, dtype) for part in (rows.X, rows.y, rows.weight))
        self.start = torch.as_tensor(rows.start[:-1].copy()).to(device)
        self.counts = torch.as_tensor(rows.counts).to(device)
        self.longest = max(1, int(rows.counts.max(initial=1)))
        self.even = len(rows) * self.longest == len(rows.X)
        self.slots = torch.arange(self.longest, device=device)
        if self.even:
            self.X, self.y, self.weight = (t.reshape(len(rows), self.longest, *t.shape[1:]) for t in (self.X, self.y, self.weight))

    def __getitem__(self, which: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Padded rows, leading axes as `which`; weight 0 where there are none."""
        import torch

        somebody = which >= 0
        safe = which.clamp_min(0)
        if self.even:
            return self.X[safe], self.y[safe], self.weight[safe] * somebody[..., None]
        real = (self.slots < self.counts[safe][..., None]) & somebody[..., None]
        at = torch.where(real, self.start[safe][..., None] + self.slots, 0)
        return self.X[at], self.y[at], self.weight[at] * real


class Replayed:
    """A function of tensors recorded once as a CUDA graph and replayed: launching kernel by kernel takes longer than they run.

    Its inputs are copied to where the recording reads them; what it returns is overwritten by the next call.
    """

    def __init__(self, function: Any, inputs: tuple[torch.Tensor, ...], pool: Any) -> None:
        import torch

        self.inputs = tuple(tensor.clone() for tensor in inputs)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                function(*self.inputs)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool):
            self.output = function(*self.inputs)

    def __call__(self, *inputs: torch.Tensor) -> torch.Tensor:
        for held, new in zip(self.inputs, inputs, strict=True):
            held.copy_(new, non_blocking=True)
        self.graph.replay()
        return self.output


class TensorPairs:
    """Steps and scores of all pairs; holds the targets' models."""

    _w: Any

    def __init__(
        self, home: Home, learner: Any, proposer: GradientStep, *, device: str, dtype: str | None, seed: int, compiled: bool
    ) -> None:
        torch = need("torch", extra="torch", why=f"device={device!r}")
        try:
            self.device = torch.device(device)
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError) as error:
            raise InputError(f"device={device!r} cannot be used here: {str(error).splitlines()[0]}") from None
        self.home, self.learner, self.proposer, self.seed, self.compiled = home, learner, proposer, seed, compiled
        self.dtype = getattr(torch, one_of("dtype", dtype or getattr(learner, "dtype", "float64"), ("float32", "float64")))
        self._rows: dict[int, Rows] = {}
        self._chunk: int | None = None  # where memory ran out
        self._fits: dict[int, int] = {}
        self._own: Any = None  # where the targets' own rows are, here and there
        self._w = None
        self._functions: dict[str, Any] = {}
        self._recorded: dict[Any, Replayed] = {}
        self._shared: Any = None
        # Rows of a stream lie elsewhere every round, and a minibatch is drawn on this side: those are launched kernel by kernel.
        self.records = self.device.type == "cuda" and home.source is None and proposer.batch is None

    # Models

    @property
    def models(self) -> Array:
        """(T, size) a copy on this side."""
        assert self._w is not None
        return np.asarray(self._w.detach().cpu().numpy())

    @models.setter
    def models(self, models: Array) -> None:
        import torch

        new = torch.tensor(np.asarray(models)).to(self.device, self.dtype)
        if self._w is None or self._w.shape != new.shape:
            self._w = new
            self._recorded.clear()
        else:
            self._w.copy_(new)  # recordings read this place

    def moved(self, rows: Devices) -> Rows:
        """Rows on the device; those of a fleet that stays are moved once."""
        held = self._rows.get(id(rows))
        if held is None or held.devices is not rows:
            if len(self._rows) > 3:  # a stream: what has passed is not needed again
                self._rows.clear()
            held = self._rows[id(rows)] = Rows(rows, self.device, self.dtype)
        return held

    # A round

    def answers(self, peers: IntArray, r: int) -> Answers:
        """Losses and lengths of all pairs."""
        if peers.max(initial=-1) >= self.home.n:
            raise stranger(int(peers.max()), self.home.n)
        T, S = peers.shape
        asked = self.home.peers(peers)
        theirs, own = self.moved(asked.rows), self.moved(self.home.scoring.rows)
        mine, which = self._mine(), self._tensor(asked.which)

        def work(part: slice) -> Any:
            # Whatever a recording reads must be an input or stay where it is: rows and models do.
            def answered(their: Any, at: Any) -> Any:
                return self._whole("_answered")(self._w[part], at, their, theirs, own, self._place(part, peers, r))

            return self._run(("answers", part.start, part.stop, S), answered, which[part], mine[part]).cpu().numpy()

        parts = self._parts(T, S, work)
        both = np.asarray(parts[0] if len(parts) == 1 else np.concatenate(parts), dtype=np.float64)
        losses, lengths = np.ascontiguousarray(both[:, : S + 1]), np.ascontiguousarray(both[:, S + 1 :])
        nobody = asked.which < 0
        if nobody.any():
            losses[:, 1:][nobody], lengths[nobody] = np.inf, np.nan
        return Answers(losses, lengths)

    def adopt(self, choice: Choice, r: int) -> None:
        """Every target's model becomes the mix it chose."""
        T, K = choice.peers.shape
        if not K:
            return
        asked = self.home.peers(choice.peers)
        theirs, which = self.moved(asked.rows), self._tensor(asked.which)
        single = K == 1 and bool((choice.weights == 1.0).all())
        mixing = [] if single else [self._tensor(values).to(self.dtype) for values in (choice.weights, choice.stay)]

        def work(part: slice) -> None:
            def adopted(their: Any, *weights: Any) -> Any:
                w = self._w[part]
                return w.copy_(self._whole("_adopted")(w, their, theirs, self._place(part, choice.peers, r), *weights))

            self._run(("adopt", part.start, part.stop, K, single), adopted, which[part], *(values[part] for values in mixing))

        self._parts(T, K, work)
        self._renew()

    def proposals(self, peers: IntArray, asked: Slice, r: int) -> Array:
        """(T, S, size) what these peers answer from these rows, on this side."""
        theirs, which = self.moved(asked.rows), self._tensor(asked.which)

        def work(part: slice) -> Any:
            answered = self._proposals(self._w[part], theirs[which[part]], self._place(part, peers, r))
            return answered.detach().cpu().numpy()

        return np.asarray(np.concatenate(self._parts(peers.shape[0], peers.shape[1], work)), dtype=np.float64)

    def hold(self, models: Array) -> None:
        """These models from now on, with running statistics renewed."""
        self.models = models
        self._renew()

    def _renew(self) -> None:
        if getattr(self.learner, "renews", False):
            own = self.home.training
            self.models = np.stack([self.learner.settled(model, own[t]) for t, model in enumerate(self.models)])

    def _mine(self) -> torch.Tensor:
        """Where the targets' own rows are."""
        which = self.home.scoring.which
        if self._own is None or self._own[0] is not which:
            self._own = (which, self._tensor(which))
        return self._own[1]

    def _answered(
        self, w: torch.Tensor, mine: torch.Tensor, their: torch.Tensor, theirs: Rows, own: Rows, place: Any
    ) -> torch.Tensor:
        """(C, 1 + 2 S): the own loss, the answers' losses, their lengths."""
        import torch

        own_rows = own[mine]
        now = self._function("score")(w[:, None], *own_rows)
        if not their.shape[1]:
            return now
        proposals = self._proposals(w, theirs[their], place)
        lengths = ((proposals - w[:, None]) ** 2).sum(dim=-1).sqrt()
        return torch.cat([now, self._function("score")(proposals, *own_rows), lengths], dim=1)

    def _adopted(
        self, w: torch.Tensor, their: torch.Tensor, theirs: Rows, place: Any, weights: Any = None, stay: Any = None
    ) -> torch.Tensor:
        import torch

        proposals = self._proposals(w, theirs[their], place)
        if weights is None:
            return proposals[:, 0]
        mixed = torch.where(weights[..., None] > 0, weights[..., None] * proposals, 0.0).sum(dim=1)
        return mixed + torch.where(stay[:, None] > 0, stay[:, None] * w, 0.0)

    def _whole(self, name: str) -> Any:
        """A chunk's whole computation, compiled in one piece where that was asked for."""
        import torch

        if not self.compiled or self.proposer.batch is not None:
            return getattr(self, name)
        if name not in self._functions:
            self._functions[name] = torch.compile(getattr(self, name), dynamic=False)
        return self._functions[name]

    def _proposals(self, w: torch.Tensor, rows: tuple[torch.Tensor, ...], place: Any) -> torch.Tensor:
        """(C, S, size) what peers answer."""
        if self.proposer.batch is None:
            return self._function("steps")(w, *rows)
        now = self._function("steps")(w, *self._minibatch(rows, place.at("batch", 0)))
        for step in range(1, self.proposer.steps):
            now = self._function("more")(now, *self._minibatch(rows, place.at("batch", step)))
        return now

    def _place(self, part: slice, peers: IntArray, r: int) -> Any:
        return (
            None if self.proposer.batch is None else stream(self.seed, "answer", r).at(self.home.targets[part, None], peers[part])
        )

    def _minibatch(self, rows: tuple[torch.Tensor, ...], place: Any) -> tuple[torch.Tensor, ...]:
        """The rows that `persfl.proposers.gradient.minibatch` draws, here."""
        import torch

        X, y, weight = rows
        marks = torch.as_tensor(place.uniform(X.shape[-2])).to(self.device)
        order = torch.where(weight > 0, marks, torch.inf).argsort(dim=-1, stable=True)[..., : self.proposer.batch]
        picked = order[..., None].expand(*order.shape, X.shape[-1])
        return X.gather(-2, picked), y.gather(-1, order), weight.gather(-1, order)

    def _function(self, name: str) -> Any:
        """What is computed for a chunk.

        "steps" takes a model per target and rows per pair, "more" a model and rows per pair, "score" several models per target and
        its rows. That the first step starts from the target's one model lets its forward pass be one product for all peers.
        """
        from torch.func import vmap

        if name not in self._functions:
            learner, size = self.learner, float(self.proposer.step_size)
            steps = self.proposer.steps if self.proposer.batch is None else 1

            def step(w: Any, X: Any, y: Any, weight: Any) -> Any:
                for _ in range(steps):
                    w = w - size * learner.slopes(w, X, y, weight)
                return w

            made = {
                "steps": vmap(vmap(step, in_dims=(None, 0, 0, 0))),
                "more": vmap(vmap(step)),
                "score": vmap(vmap(learner.losses, in_dims=(0, None, None, None))),
            }[name]
            self._functions[name] = made
        return self._functions[name]

    def _run(self, key: Any, function: Any, *inputs: torch.Tensor) -> torch.Tensor:
        """The function, recorded where that is possible."""
        # A recording keeps the memory it used. One for all targets is worth that; one per chunk would add up to all of them, and
        # chunks are large enough to keep the device busy without.
        if not self.records or len(inputs[0]) < len(self.home.targets):
            return function(*inputs)
        if key not in self._recorded:
            if len(self._recorded) >= MOST_RECORDED:
                self._recorded.clear()
            kept = self._w.clone()  # recording runs the function, which may change the models
            self._recorded[key] = Replayed(function, inputs, self._pool())
            self._w.copy_(kept)
        return self._recorded[key](*inputs)

    def _pool(self) -> Any:
        """Memory that all recordings share: they are replayed one after the other."""
        import torch

        if self._shared is None:
            self._shared = torch.cuda.graph_pool_handle()
        return self._shared

    def _tensor(self, values: Any) -> torch.Tensor:
        import torch

        return torch.as_tensor(np.ascontiguousarray(values)).to(self.device)

    # Memory

    def _parts(self, targets: int, peers: int, work: Any) -> list[Any]:
        """Do the work for all targets, in chunks; a chunk that does not fit is halved (and done again: work must allow that)."""
        import torch

        if peers not in self._fits:
            self._fits[peers] = self._fitting(peers)
        size = min(self._chunk or targets, self._fits[peers], targets) or 1
        done: list[Any] = []
        first = 0
        while first < targets:
            part = slice(first, min(first + size, targets))
            try:
                done.append(work(part))
                first = part.stop
            except torch.cuda.OutOfMemoryError:
                if size == 1:
                    raise
                self._recorded.clear()
                torch.cuda.empty_cache()
                size = self._chunk = max(1, size // 2)
                warnings.warn(f"the device ran out of memory: going on with {size} targets at a time.", PersflWarning, stacklevel=4)
        return done

    def _fitting(self, peers: int) -> int:
        """How many targets' pairs fit into a share of the free memory."""
        import torch

        rows = self.home.scoring.rows
        longest = int(rows.counts.max(initial=1))
        features = rows.features
        model = self._w.shape[1]
        pair = self.dtype.itemsize * (6 * model + longest * (3 * features + self._width()))
        free = SHARE * torch.cuda.mem_get_info(self.device)[0] if self.device.type == "cuda" else CPU_BYTES
        return max(1, int(free // (pair * max(1, peers))))

    def _width(self) -> int:
        """About how many numbers a row takes inside the model, there and back."""
        return 4 if isinstance(self.learner, LinearTensors) else int(self.learner.width)
