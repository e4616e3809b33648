"""A torch module: made afresh, and laid out as one vector of numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from persfl.errors import InputError
from persfl.learners.frozen_parts import frozen_names

if TYPE_CHECKING:
    from persfl.types import Array

DTYPES = {"float32": torch.float32, "float64": torch.float64}


class Slot(NamedTuple):
    """Where a part of a module lies in a model's vector."""

    name: str
    shape: tuple[int, ...]
    begin: int
    end: int


class Layout(NamedTuple):
    """A module's numbers as a vector: the first `trained` are parameters, the rest is what steps
    leave alone (floating buffers). What is frozen is in no vector: all devices have the same.
    """

    slots: tuple[Slot, ...]
    start: Array
    trained: int


def new_module(make: Callable[[], object], dtype: str, seed: int) -> nn.Module:
    """What `make` gives under a seed, ready to be evaluated."""
    if isinstance(make, nn.Module) or not callable(make):
        raise InputError(
            "make must be a function that makes a fresh module, such as lambda:"
            " nn.Linear(4, 1)."
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = _made(make)
    if not isinstance(module, nn.Module):
        raise InputError(
            f"make must return a torch.nn.Module. Got {type(module).__name__}."
        )
    return module.to("cpu", DTYPES[dtype]).eval()


def _made(make: Callable[[], object]) -> object:
    """A fresh module; the function is the user's, and may raise anything."""
    try:
        return make()
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"the module could not be made: {type(error).__name__}: {error}. "
            "What makes it must take the arguments (features, outputs) or none."
        ) from error


def layout_of(module: nn.Module) -> Layout:
    """Where its parts lie, in the module's order, and the numbers that they have now."""
    if any(
        nn.parameter.is_lazy(part) for part in (*module.parameters(), *module.buffers())
    ):
        raise InputError(
            "the module has lazy parts, which have no shape yet. Name the number of features"
            " instead."
        )
    frozen = frozen_names(module)
    parts = [
        (name, value)
        for name, value in _parts(module).items()
        if value.is_floating_point() and name not in frozen
    ]
    parts.sort(key=lambda part: not part[1].requires_grad)  # what steps change is first
    slots = []
    at = 0
    for name, value in parts:
        slots.append(Slot(name, tuple(value.shape), at, at + value.numel()))
        at += value.numel()
    trained = sum(value.numel() for _, value in parts if value.requires_grad)
    if not trained:
        raise InputError(
            "the module has no parameters that require a gradient, so there is nothing to learn."
        )
    start = np.concatenate([value.detach().numpy().ravel() for _, value in parts])
    return Layout(tuple(slots), start, trained)


def device_named(compute: str) -> torch.device:
    """Where torch computes, if it can here."""
    try:
        device = torch.device(compute)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        said = str(error).splitlines()[0]
        raise InputError(f"compute={compute!r} cannot be used here: {said}") from None
    return device


def fill(module: nn.Module, named: Mapping[str, Array]) -> None:
    """Give a module these numbers."""
    parts = _parts(module)
    with torch.no_grad():
        for name, value in named.items():
            parts[name].copy_(torch.as_tensor(value))


def still_parts(module: nn.Module) -> dict[str, Tensor]:
    """What is no part of a model's vector: what is frozen, and whole numbers."""
    frozen = frozen_names(module)
    return {
        name: value.detach()
        for name, value in _parts(module).items()
        if name in frozen or not value.is_floating_point()
    }


def mark_of_frozen(module: nn.Module) -> str:
    """The SHA-256 of what is frozen; empty where nothing is."""
    digest = hashlib.sha256()
    known = still_parts(module)
    frozen = sorted(name for name in known if known[name].is_floating_point())
    for name in frozen:
        values = known[name].numpy()
        digest.update(f"{name} {values.dtype} {values.shape}".encode())
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest() if frozen else ""


def _parts(module: nn.Module) -> dict[str, Tensor]:
    return dict(module.named_parameters()) | dict(module.named_buffers())


def norms(module: nn.Module) -> list[Any]:
    """The parts of a module that keep running statistics, and renew them."""
    still = frozen_names(module)
    return [
        part
        for path, part in module.named_modules()
        if "running_mean" in dict(part.named_buffers(recurse=False))
        and f"{path}.running_mean".lstrip(".") not in still
    ]


def unsteady(module: nn.Module, rows: Tensor, said: Tensor) -> str:
    """Why what a module said of rows is not a function of each row; empty if it is."""
    again = module(rows)
    if not isinstance(again, Tensor) or not isinstance(said, Tensor):
        return ""  # which is said elsewhere
    if not torch.equal(again.nan_to_num(), said.nan_to_num()):
        return (
            "the module says something else of the same rows each time. Take nn.Dropout, which is"
            " off here, instead of functions that draw at random."
        )
    alone = module(rows[:1]).nan_to_num()
    if said.ndim and not torch.allclose(alone, said[:1].nan_to_num(), 1e-3, 1e-4):
        return (
            "what the module says of a row depends on the rows beside it. Take a norm that keeps"
            " running statistics (track_running_stats=True), or one of each row, such as GroupNorm."
        )
    return ""


def cannot_map(error: RuntimeError) -> bool:
    """Whether this is `torch.func.vmap` saying that it cannot take a module."""
    text = str(error)
    return any(word in text for word in ("vmap", "functorch", "Batching rule"))


def numbers_inside(module: nn.Module, row: Tensor) -> int:
    """About how many numbers a row takes on its way through a module and back: four for each that a
    layer with parameters says (it, its activation and their slopes), and a convolution's columns.

    >>> numbers_inside(nn.Sequential(nn.Linear(5, 3), nn.ReLU()), torch.zeros(1, 5))
    12
    >>> numbers_inside(nn.Conv2d(1, 2, 3), torch.zeros(1, 1, 4, 4))
    68
    """
    found: list[int] = []

    def count(layer: nn.Module, _: object, said: object) -> None:
        first = said[0] if isinstance(said, tuple) else said
        if not isinstance(first, Tensor):
            return
        found.append(4 * first.numel())
        if isinstance(layer, nn.Conv2d):
            places = first[0, 0].numel()
            found.append(places * layer.weight[0].numel())

    layers = [m for m in module.modules() if list(m.parameters(recurse=False))]
    hooks = [layer.register_forward_hook(count) for layer in layers]
    try:
        with torch.no_grad():
            module(row)
    finally:
        for hook in hooks:
            hook.remove()
    return sum(found)
