"""
Wide tables: few rows, many columns
===================================

Expression levels of 10,000 genes in 300 samples, of which five act. The question is which; a model of a few tables is
the answer, if it can be trusted.
"""

import time

import matplotlib.pyplot as plt
import numpy as np

from rbr import RBRRegressor

rng = np.random.default_rng(0)
n_samples, n_genes = 300, 10_000
X = rng.lognormal(size=(n_samples, n_genes)).astype(np.float32)
acting = np.sort(rng.choice(n_genes, 5, replace=False))
effects = [
    lambda x: 1.2 * (x > 1),  # a switch
    lambda x: -1.2 * (x > 0.6),
    lambda x: 0.9 * np.log(x),  # a trend
    lambda x: 1.2 * np.minimum(x, 2),  # saturation
    lambda x: 2.2 * (np.abs(np.log(x)) < 0.7),  # a window, of which a linear model sees nothing
]
signal = sum(effect(X[:, j]) for effect, j in zip(effects, acting, strict=True))
y = signal + rng.normal(scale=0.6, size=n_samples)

# %%
# Limits keep the search small: few bins, few pieces, few genes. A gene must explain 2 log(1 + 10,000) units of
# log-likelihood more than its pieces cost, which is the price of having been chosen among so large a number.
limits = {"max_bins": 16, "max_segments": 4, "max_features": 10, "n_bags": 0}
start = time.process_time()
m = RBRRegressor(**limits).fit(X, y)
print(f"{time.process_time() - start:.1f} CPU seconds")
print("acting:  ", acting)
print("selected:", m.selected_features_)

# %%
# The window, of which a linear model sees nothing, beside the truth; `m.plot()` draws all of them.
(ax,) = m.plot(f"x{acting[-1]}", x_scale="log")
x = np.geomspace(0.05, 20, 500)
truth = effects[-1](x)
ax.plot(x, truth - effects[-1](X[:, acting[-1]]).mean(), color="gray", linewidth=1, zorder=1)
plt.show()

# %%
# Had nothing acted
# -----------------
# The same search on a target that has been shuffled should find nothing.
found = [len(RBRRegressor(**limits).fit(X, rng.permutation(y)).terms_) for _ in range(3)]
print("selected on shuffled targets:", found)
