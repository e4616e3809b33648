"""Everything a curve of a figure depends on, and which settings go together."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace

from persfl.checks import one_of
from persfl.errors import InputError
from persfl.lab.spec_files import Values, typed_values

FIGURE_METHODS = (
    "algorithm1",
    "algorithm2",
    "oracle",
    "ifca",
    "local",
    "pooled",
    "fedavg",
    "finetuned",
    "ditto",
    "blend",
)
# all devices of a run share models
SHARING = ("ifca", "pooled", "fedavg", "finetuned", "ditto")
TREES = ("tree", "forest")
NETWORKS = ("mlp", "cnn")
LEARNERS = ("linear", *TREES, *NETWORKS)
MAY_BE_ZERO = ("drift_at", "alone")  # of the whole numbers


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything a single curve depends on, the random seed apart."""

    method: str = "algorithm1"
    n: int = 100
    clusters: int = 2
    rows: int = 10
    features: int = 20
    noise: float = 0.0
    deviation: float = 0.0
    rounds: int = 1500
    peers: int = 20
    step_size: float = 0.05
    top: int = 1  # of the best answers that are averaged; 1 is the paper's rule
    online: bool = False  # peers have fresh rows each round
    # and so has the target: it scores by other rows each round
    online_target: bool = False
    drift_at: int = 0  # the target changes its cluster in this round; 0: never
    told: int = 2  # the number of clusters IFCA is told
    # of the devices that take part in a round of IFCA, FedAvg or Ditto
    share: float = 0.2
    alone: int = 0  # last rounds in which devices go on alone from the model of FedAvg
    pull: float = 0.0  # of Ditto's models toward that of FedAvg
    learner: str = "linear"
    depth: int = 3
    trees: int = 5
    public: int = 100
    private_weight: float = 1.0
    public_weight: float = 1.0
    validation: int = 100  # fresh rows on which trees are judged
    held: int = 40  # rows per device on which networks are judged
    compute: str = "cpu"  # where networks are computed

    @property
    def vector(self) -> bool:
        """Whether models are judged by the true weights: many runs then go through one fleet."""
        return self.learner == "linear"

    @property
    def tree(self) -> bool:
        """Whether models are trees, which are judged by fresh rows."""
        return self.learner in TREES

    @property
    def network(self) -> bool:
        """Whether models are networks, which are judged by held-out digits."""
        return self.learner in NETWORKS


USUAL = asdict(Settings())


def checked_settings(spec: str, values: Values) -> Settings:
    """Settings of known names and types that go together."""
    known = [field.name for field in fields(Settings)]
    s = Settings(**typed_values(spec, values, Settings, known))
    one_of("method", s.method, FIGURE_METHODS)
    one_of("learner", s.learner, LEARNERS)
    if s.tree and s.method != "algorithm2":
        need = f"learner={s.learner!r} goes with method='algorithm2'"
        raise InputError(f"{spec}: {need}. Got {s.method!r}.")
    if s.network and (s.method in ("algorithm2", "pooled") or s.online):
        need = f"learner={s.learner!r} goes with steps on rows that stay"
        raise InputError(f"{spec}: {need}. Got {s.method!r}.")
    if s.method == "blend" and not s.network:
        raise InputError(
            f"{spec}: method='blend' goes with networks here. Got {s.learner!r}."
        )
    if s.method in SHARING and (s.online or s.drift_at):
        need = f"method={s.method!r} needs data that stays"
        raise InputError(f"{spec}: {need}: online=false, drift_at=0.")
    if s.drift_at < 0 or (s.drift_at and (not s.vector or s.clusters < 2)):
        need = "drift_at must be a round, with a linear learner and 2 or more clusters"
        raise InputError(f"{spec}: {need}. Got {s.drift_at}.")
    for key, value in asdict(s).items():
        if type(value) is int and value < 1 and key not in MAY_BE_ZERO:
            raise InputError(f"{spec}: {key} must be at least 1. Got {value}.")
    if not 0 <= s.alone <= s.rounds or s.pull < 0:
        need = "alone must be 0 to rounds and pull at least 0"
        raise InputError(f"{spec}: {need}. Got {s.alone} and {s.pull:g}.")
    return s


def quick_settings(settings: Settings) -> Settings:
    """Few rounds, and with networks few devices: shows that everything runs."""
    s = settings
    if s.vector:
        return replace(s, rounds=max(10, s.rounds // 10), drift_at=s.drift_at // 10)
    short = replace(s, rounds=max(10, s.rounds // 25))
    if s.tree:
        return short
    return replace(short, n=min(s.n, 24), peers=min(s.peers, 5), alone=min(s.alone, 5))


def comparable(settings: Settings) -> Settings:
    """Settings as they count when curves are compared: a short one is the beginning of a longer."""
    return replace(settings, rounds=USUAL["rounds"], compute=USUAL["compute"])
