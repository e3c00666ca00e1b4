"""
A credit scorecard
==================

A scorecard is a table of points that add up. Here one is learned, with pieces that hold at least five percent of the
rows, an income that may only help, and points on the usual scale: 600 at odds of 50 to 1, 20 more where odds double.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from rbr import RBRClassifier

rng = np.random.default_rng(0)
n = 8000
applicants = pd.DataFrame(
    {
        "age": rng.integers(18, 75, n),
        "income": rng.lognormal(10.4, 0.5, n).round(-2),
        "years employed": rng.exponential(5, n).round(1),
        "other loans": rng.poisson(1.0, n),
        "home": rng.choice(["own", "rent", "family", "other"], n, p=[0.4, 0.4, 0.15, 0.05]),
        "shoe size": rng.normal(41, 3, n).round(),
    }
)
applicants.loc[rng.random(n) < 0.15, "years employed"] = np.nan  # not everybody says
score = (
    2.2
    + 0.9 * np.log(applicants["income"] / 33_000)
    - 0.9 * (applicants["age"] < 25)
    - 0.5 * applicants["other loans"].clip(upper=3)
    + applicants["home"].map({"own": 0.6, "rent": -0.1, "family": -0.1, "other": -0.5})
    + np.where(applicants["years employed"].isna(), -0.4, 0.15 * applicants["years employed"].clip(upper=8) - 0.4)
)
outcome = pd.Series(np.where(rng.random(n) < 1 / (1 + np.exp(-score)), "repaid", "default"), name="outcome")
X, X_test, y, y_test = train_test_split(applicants, outcome, random_state=0, stratify=outcome)

# %%
# Fit
# ---
# `shape="constant"` makes steps, which can be written on a card; `n_bags=0` keeps them few.
m = RBRClassifier(
    shape="constant",
    min_rows=0.05,
    max_segments=6,
    monotonic_cst={"income": 1, "years employed": 1, "other loans": -1},
    n_bags=0,
).fit(X, y)
print(m.summary())
print(f"area under the ROC curve, new applicants: {roc_auc_score(y_test == 'repaid', m.decision_function(X_test)):.3f}")

# %%
# The shoe size has no evidence and is not in the model. What do few pieces cost? The default, without any limit:
free = RBRClassifier().fit(X, y)
print(f"without limits: {roc_auc_score(y_test == 'repaid', free.decision_function(X_test)):.3f}, {free.model_!r}")

# %%
# Points
# ------
# Points are rounded to whole numbers by a search that keeps the order of applicants as well as it can.
card = m.scorecard((600, 50, 20), X, y)
print(card.rounding)
card.to_frame()[["term", "range", "points", "rows", "positive_share"]].round(2)

# %%
# The points of new applicants, by what became of them:
points = card.points(X_test)
fig, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
for name, colour in (("repaid", "#00798c"), ("default", "#d1495b")):
    chosen = points[(y_test == name).to_numpy()]
    ax.hist(chosen, bins=np.arange(440, 660, 10), density=True, alpha=0.6, color=colour, label=name)
ax.set(xlabel="points", ylabel="share of the applicants")
ax.legend()
plt.show()

# %%
# Reasons
# -------
# A refusal must be explained. These are the terms that moved the score of one applicant, the largest first.
scores = m.decision_function(X_test)
refused = X_test.iloc[int(np.argmin(scores))]
print(m.explain_row(refused))

# %%
# The model
# ---------
m.plot()
plt.show()

# %%
# Next year
# ---------
# Applicants change. `check` compares new rows with the shares of the training rows that every term keeps.
later = X_test.assign(income=X_test["income"] * 0.8)
print(m.model_.check(later))
