"""Make docs/adult.png: the terms of a model of the Adult table, with bootstrap bands.

    python docs/adult.py [--data FOLDER] [--out docs/adult.png]

FOLDER holds adult.csv.gz; without it the table is looked for as `rbr.datasets.load_adult` does.
"""

import argparse
from pathlib import Path

import matplotlib
import numpy as np

from rbr import RBRClassifier
from rbr.datasets import load_adult

N_REFITS = 50
N_TERMS = 6


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the model of the Adult table.")
    parser.add_argument("--data", help="the folder of adult.csv.gz")
    parser.add_argument("--out", default=Path(__file__).with_name("adult.png"), help="default: %(default)s")
    arguments = parser.parse_args()
    matplotlib.use("Agg")
    table = load_adult(arguments.data)
    y = np.array(table.target_names)[table.target]
    m = RBRClassifier().fit(table.data, y)
    bands = m.bootstrap(table.data, y, n=N_REFITS, n_jobs=-1, verbose=1)
    axes = m.plot(max_terms=N_TERMS, bands=bands)
    axes[0].figure.savefig(arguments.out, dpi=100)
    print(f"{m.model_!r}: {arguments.out}")


if __name__ == "__main__":
    main()
