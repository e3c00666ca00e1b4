"""
Claim frequency with exposure
=============================

Policies were at risk for different parts of a year. A model of claims must be one of claims per year: the logarithm of
the exposure enters as an offset, and the model is read as a tariff of relativities.
"""

# sphinx_gallery_thumbnail_number = 2
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.metrics import mean_poisson_deviance
from sklearn.model_selection import train_test_split

from rbr import RBRRegressor

rng = np.random.default_rng(0)
n = 40_000
policies = pd.DataFrame(
    {
        "driver age": rng.integers(18, 90, n),
        "vehicle age": rng.integers(0, 20, n),
        "power": rng.gamma(6, 15, n).round(),
        "area": rng.choice(["city", "suburb", "town", "village"], n, p=[0.3, 0.3, 0.25, 0.15]),
        "colour": rng.choice(["black", "blue", "red", "white"], n),
    }
)
exposure = rng.uniform(0.05, 1.0, n)
rate = (
    0.08
    * np.where(policies["driver age"] < 26, 2.2, np.where(policies["driver age"] > 74, 1.5, 1.0))
    * np.exp(0.004 * policies["power"])
    * policies["area"].map({"city": 1.4, "suburb": 1.2, "town": 1.0, "village": 1.0}).to_numpy()
)
claims = pd.Series(rng.poisson(rate * exposure), name="claims")
train, test = train_test_split(np.arange(n), random_state=0)

# %%
# Fit
# ---
# The target is the number of claims, not the rate: a policy of a month says less than one of a year, and a Poisson
# model knows by how much.
m = RBRRegressor("poisson").fit(policies.iloc[train], claims.iloc[train], offset=np.log(exposure[train]))
print(m.summary())

# %%
# The tariff
# ----------
# Relativities multiply. Beside each stand the exposure and the observed rate of the training rows; neither the colour
# nor the age of the vehicle has any evidence.
tariff = m.to_frame()
tariff[["term", "range", "relativity", "exposure", "rate"]].round(3).head(20)

# %%
m.plot()
plt.show()

# %%
# Is it right?
# ------------
# `score` is the share of the Poisson deviance that is explained, beside the same offsets. Sorted by predicted rate, the
# observed claims of ten groups should follow.
X, y, log_exposure = policies.iloc[test], claims.iloc[test], np.log(exposure[test])
print(f"explained deviance of new policies: {m.score(X, y, offset=log_exposure):.4f}")
constant = claims.iloc[train].sum() / exposure[train].sum() * exposure[test]
best = 1 - mean_poisson_deviance(y, rate.iloc[test] * exposure[test]) / mean_poisson_deviance(y, constant)
print(f"by the true rates, which nobody knows: {best:.4f}")
predicted = m.predict(X)  # without an offset: claims per year
group = pd.qcut(predicted, 10, labels=range(1, 11)).astype(int)
table = pd.DataFrame({"claims": y.to_numpy(), "exposure": exposure[test]})
sums = table.assign(expected=predicted * exposure[test]).groupby(group).sum()
fig, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
ax.plot(sums["expected"] / sums["exposure"], label="expected")
ax.plot(sums["claims"] / sums["exposure"], "o", label="observed")
ax.set(xlabel="tenth of the policies, by predicted rate", ylabel="claims per year")
ax.legend()
plt.show()

# %%
# One policy
# ----------
print(m.explain_row(policies.iloc[0], offset=np.log(0.5)))
