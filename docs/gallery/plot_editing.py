"""
Editing a model
===============

The person who signs a model may know more than its data: that a dip is an artefact, that two groups must be treated
alike, that a column must not be used. Every edit returns a new model; what it changes can be seen before it is kept.
"""

# sphinx_gallery_thumbnail_number = 2
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import rbr
from rbr import RBRClassifier

rng = np.random.default_rng(3)
n = 6000
patients = pd.DataFrame(
    {
        "age": rng.integers(18, 95, n),
        "pressure": rng.normal(130, 20, n).round(),
        "ward": rng.choice(["A", "B", "C", "D"], n),
        "asthma": rng.choice(["no", "yes"], n, p=[0.85, 0.15]),
    }
)
risk = -4.5 + 0.05 * (patients["age"] - 40) + 1.0 * (patients["pressure"] < 100)
# Patients with asthma went straight to intensive care, and so did better: true of the data, fatal as a rule.
risk = risk - 0.8 * (patients["asthma"] == "yes") + patients["ward"].map({"A": 0.0, "B": 0.4, "C": 0.6, "D": 0.0})
died = pd.Series(np.where(rng.random(n) < 1 / (1 + np.exp(-risk)), "died", "survived"), name="outcome")
m = RBRClassifier().fit(patients, died.map({"died": 1, "survived": 0}).rename("death"))
print(m.summary())

# %%
# Read it first
# -------------
# The model says that asthma protects. A black box would have said so as well, and nobody would have seen it.
m.plot()
plt.show()

# %%
# Three edits
# -----------
# Asthma must not count, wards B and C share their staff and must be treated alike, and risk may not fall with age.
model = m.model_
print([(i, piece.text, round(float(piece.value), 2)) for i, piece in enumerate(model["ward"].pieces)])
edited = model.zero("asthma").merge("ward", [1, 2]).make_monotone("age")

# %%
# What they change
# ----------------
before, after = model.predict_proba(patients)[:, 1], edited.predict_proba(patients)[:, 1]
changed = np.abs(after - before) > 0.02
print(f"{changed.mean():.0%} of the patients move by more than two points")
print(pd.Series(after - before).groupby(patients["asthma"]).mean().round(3).to_dict())

fig, ax = plt.subplots(figsize=(5, 4), layout="constrained")
for answer, colour in (("no", "gray"), ("yes", "crimson")):
    rows = (patients["asthma"] == answer).to_numpy()
    ax.plot(before[rows], after[rows], ".", color=colour, markersize=3, label=f"asthma: {answer}")
ax.axline((0, 0), slope=1, color="black", linewidth=0.5)
ax.set(xlabel="risk before", ylabel="risk after")
ax.legend()
plt.show()

# %%
# Keep it
# -------
# The file says who edited what, if somebody writes it down, and loads like any other.
edited.metadata["edits"] = "asthma set to zero; wards B and C treated alike; age made monotone"
edited.save("edited.json")
print(rbr.load("edited.json").metadata)
