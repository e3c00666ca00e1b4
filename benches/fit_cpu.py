"""CPU seconds of a fit on Adult: rbr's default beside LightGBM's and an Explainable Boosting Machine's, in one run.

    python benches/fit_cpu.py --data FOLDER [--repeats 5]

The least of the repeats counts (one repeat for the Explainable Boosting Machine, which has 4 outer bags and no pairs).
A peer that is not installed is left out.
"""

import argparse
import time
import warnings

import numpy as np

from rbr import RBRClassifier
from rbr.datasets import load_adult


def contenders() -> dict:
    """name -> (function that makes the estimator, repeats or None for as many as asked)."""
    found = {"rbr, default": (RBRClassifier, None)}
    try:
        from lightgbm import LGBMClassifier

        found["LightGBM, default, one thread"] = (lambda: LGBMClassifier(n_jobs=1, verbose=-1), None)
    except ImportError:
        print("LightGBM is not installed: left out")
    try:
        from interpret.glassbox import ExplainableBoostingClassifier

        found["EBM, no pairs, 4 bags"] = (
            lambda: ExplainableBoostingClassifier(interactions=0, outer_bags=4, n_jobs=1),
            1,
        )
    except ImportError:
        print("interpret is not installed: left out")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="folder with adult.csv.gz")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    adult = load_adult(path=args.data)
    X, y = adult.data, np.asarray(adult.target)
    best: dict[str, float] = {}
    for repeat in range(args.repeats):
        for name, (make, repeats) in contenders().items():
            if repeats is None or repeat < repeats:
                start = time.process_time()
                make().fit(X, y)
                best[name] = min(best.get(name, np.inf), time.process_time() - start)
    print("| fit on Adult, 32,561 x 14 | CPU seconds | times rbr |")
    print("|---|---:|---:|")
    for name, seconds in best.items():
        print(f"| {name} | {seconds:.3f} | {seconds / best['rbr, default']:.1f} |")


if __name__ == "__main__":
    main()
