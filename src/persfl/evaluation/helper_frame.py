"""Who helps whom as a table that a notebook shows with bars."""

from __future__ import annotations

from typing import Any

import pandas as pd

from persfl.checks import many, percent
from persfl.evaluation.html_tables import Scale, html_table, share_bar, whisker

SHOWN = 20  # rows in a notebook


class HelperFrame(pd.DataFrame):
    """A DataFrame in everything but how a notebook shows it; what is made of it is a plain one."""

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    def _repr_html_(self) -> str:
        """The first pairs, with shares and rewards as small pictures."""
        first = self.head(SHOWN)
        rewards = first[["reward_low", "reward_mean", "reward_high"]].to_numpy()
        low = float(pd.Series(rewards.ravel()).min(skipna=True))
        high = float(pd.Series(rewards.ravel()).max(skipna=True))
        scale = Scale(min(0.0, low), max(0.0, high))
        head = ["device", "peer", "like it?", "share of what it took", "", "asked"]
        head += ["reward per question", "verdict"]
        rows = [_cells(row, scale) for row in first.itertuples(index=False)]
        more = len(self) - len(first)
        rest = f"<p>and {many(more, 'more pair')}</p>" if more > 0 else ""
        return html_table(head, rows) + rest


def _cells(row: Any, scale: Scale) -> list[str]:
    reward = whisker(row.reward_mean, row.reward_low, row.reward_high, scale)
    share = [share_bar(row.share), percent(row.share, digits=1)]
    names = [str(row.device), str(row.peer), percent(row.alike)]
    return [*names, *share, str(row.asked), reward, str(row.verdict)]
