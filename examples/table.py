"""From a table to a model for every device: is it worth it, who helps whom, and a report to open.

python examples/table.py
"""

from pathlib import Path

from persfl import PersonalizedRegressor
from persfl.datasets import load_housing
from persfl.report import info, write_report

housing = load_housing().frame  # any table in which one column says whose row it is
table = housing.groupby("city").sample(10, random_state=0)
later = housing.drop(table.index)

model = PersonalizedRegressor(device="city").fit(
    table.drop(columns="log_price"), table["log_price"]
)
numbers = info(model, device="city", label="log_price")

print(numbers["worth"]["verdict"]["sentence"])
print(
    f"R squared on {len(later):,} further months:"
    f" {model.score(later.drop(columns='log_price'), later['log_price']):.2f}"
)
print("\nWho helps Austin:")
print(
    model.helpers_.query("device == 'Austin'")[
        ["peer", "asked", "adopted", "share", "verdict"]
    ]
    .head()
    .to_string(index=False)
)
print(
    "\nAustin's model is made of: "
    + ", ".join(
        f"{name} {share:.0%}"
        for name, share in model.made_of().set_index("device").loc["Austin"].items()
    )
)
print(f"\nOpen {write_report(numbers, Path('report.html'))} for the rest.")
