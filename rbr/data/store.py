"""The store of a fit from blocks: codes, targets, weights and offsets of all rows in memory-mapped files.

Rows of weight zero are left out; the others are numbered. They are divided into parts of ROWS_PER_PART, and the codes
of a part are stored by feature, because sums by bin read whole features: one byte for each entry with up to 256 bins,
else two. The pages of these files belong to the page cache of the system, which may drop them; they are no memory of
the process.

A store without a name is a temporary folder, which `close` removes. One in a cache folder stays: its files are raw
arrays and a JSON file with their sizes and checksums, which are compared before anything is read from them. Nothing is
ever unpickled.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
import warnings
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rbr.data.binning import Binner, joined
from rbr.data.design import BinnedMatrix
from rbr.data.tables import Table

FORMAT = 2
FACTS = "store.json"

# A part is a whole number of runs of 2^16 rows, over which sums are taken; its vectors by row take 8 MB each.
ROWS_PER_PART = 1 << 20

BYTES_PER_CHECK = 1 << 24

BINNER_ARRAYS = ("is_categorical_", "_is_excluded", "n_bins_", "missing_", "offsets_", "_edge_offsets", "_edges")
PLAIN_LEVELS = (str, bool, int, float)


class BrokenCache(Exception):
    """A stored folder that cannot be used: the message says why."""


class Store:
    """The files of a store, while they are written and when they are read.

    Attributes
    ----------
    n_rows : int
    facts : dict
        What else the one who wrote the store wants to know when it is used again; see `finish`.
    binner : Binner
    """

    def __init__(self, folder: Path, n_rows: int, is_temporary: bool):
        self.folder, self.n_rows, self.is_temporary = folder, n_rows, is_temporary
        self.facts: dict[str, Any] = {}
        self.binner = Binner()
        self._arrays: dict[str, np.ndarray] = {}
        self._crcs: dict[str, int] = {}
        self._final: Path | None = None
        self._scratch: Path | None = None

    # Writing -----------------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, n_rows: int, cache_dir: str | os.PathLike | None = None, key: str = "") -> Store:
        """A new store: in a temporary folder, or to become the folder of `key` in a cache when it is finished."""
        if cache_dir is None:
            return cls(Path(tempfile.mkdtemp(prefix="rbr-")), n_rows, is_temporary=True)
        folder = Path(cache_dir)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            unfinished = Path(tempfile.mkdtemp(prefix=f"{key}-unfinished-", dir=folder))
        except OSError as error:
            raise type(error)(
                error.errno, f"cache_dir {str(folder)!r} cannot be written to: {error.strerror}"
            ) from error
        store = cls(unfinished, n_rows, is_temporary=True)
        store._final = folder / key
        return store

    def allocate(self, name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """A new array in a file of its own, whose place on the disk is reserved."""
        path, dtype = self.folder / f"{name}.bin", np.dtype(dtype)
        n_bytes = max(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize, 1)
        try:
            reserve(path, n_bytes)
        except OSError as error:
            free = shutil.disk_usage(self.folder).free
            raise OSError(
                error.errno,
                f"{self.folder} has no place for {n_bytes / 1e9:.2f} GB ({name} of {self.n_rows:,} rows): "
                f"{error.strerror}; {free / 1e9:.2f} GB are free. Use cache_dir, or set TMPDIR, to choose another disk",
            ) from error
        self._arrays[name] = np.memmap(path, dtype=dtype, mode="r+", shape=shape)
        return self._arrays[name]

    def part_bounds(self) -> list[tuple[int, int]]:
        """The first row of each part, and the one after its last."""
        return [(a, min(a + ROWS_PER_PART, self.n_rows)) for a in range(0, self.n_rows, ROWS_PER_PART)]

    def allocate_codes(self, binner: Binner) -> None:
        """Make place for the codes of a fitted binner."""
        self.binner = binner
        dtype = np.uint8 if binner.n_bins_.max() <= 256 else np.uint16
        self.allocate("codes", (self.n_rows * binner.n_features_in_,), dtype)

    def write_codes(self, first: int, codes: np.ndarray) -> None:
        """Write the codes (n_features, n) of the rows from `first` on."""
        n_features, stop = len(codes), first + codes.shape[1]
        for a, b in self.part_bounds():
            low, high = max(a, first), min(b, stop)
            if low < high:
                self.codes(a, b, n_features)[:, low - a : high - a] = codes[:, low - first : high - first]

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Say what else is known; a store in a cache gets its name, from which on it stays."""
        self.facts = dict(facts)
        if self._final is None:
            return
        self._save_binner()
        self._write_facts()
        described = {name: (array.dtype, array.shape) for name, array in self._arrays.items()}
        self._arrays = {}  # a folder with mapped files cannot be renamed everywhere
        try:
            os.replace(self.folder, self._final)
        except OSError:
            if not self._final.is_dir():
                raise
            # Somebody else has finished the same store; or it is broken, which `open` has said.
            shutil.rmtree(self._final)
            os.replace(self.folder, self._final)
        self.folder, self.is_temporary = self._final, False
        self._arrays = {
            name: np.memmap(self.folder / f"{name}.bin", dtype=dtype, mode="r", shape=shape)
            for name, (dtype, shape) in described.items()
        }

    def _write_facts(self) -> None:
        for array in self._arrays.values():
            if isinstance(array, np.memmap):
                array.flush()
        for name in self._arrays.keys() - self._crcs.keys():
            self._crcs[name] = crc_of(self.folder / f"{name}.bin")
        files = {
            name: {"shape": list(array.shape), "dtype": array.dtype.str, "crc": self._crcs[name]}
            for name, array in self._arrays.items()
        }
        written = {"format": FORMAT, "n_rows": self.n_rows, "files": files, "facts": self.facts}
        unfinished = self.folder / f"{FACTS}.unfinished"
        unfinished.write_text(json.dumps(written), encoding="utf-8")
        os.replace(unfinished, self.folder / FACTS)

    def _save_binner(self) -> None:
        for name in (*BINNER_ARRAYS, "positions_"):
            own = getattr(self.binner, name)
            self.allocate(f"binner{name}", own.shape, own.dtype)[:] = own
        for j, levels in self.binner.categories_.items():
            odd = [level for level in levels if not isinstance(level, PLAIN_LEVELS)]
            if odd:
                raise ValueError(
                    f"column {self.binner.name_of(j)!r} has the category {odd[0]!r} of type {type(odd[0]).__name__}, "
                    f"which a cache cannot keep: convert it to text or numbers, or leave cache_dir out"
                )
        self.facts["categories"] = {str(j): list(levels) for j, levels in self.binner.categories_.items()}
        self.facts["names"] = self.binner.feature_names_in_

    # Reading -----------------------------------------------------------------------------------------------------

    @classmethod
    def open(cls, cache_dir: str | os.PathLike, key: str, binner: Binner) -> Store | None:
        """The finished store of a key; None if there is none, or if it is broken, with a warning that says why."""
        folder = Path(cache_dir) / key
        if not folder.exists():
            return None
        try:
            return cls._opened(folder, binner)
        except (BrokenCache, OSError, ValueError, KeyError, TypeError) as error:
            warnings.warn(f"the cache in {folder} is broken and is made again: {error}", stacklevel=2)
            return None

    @classmethod
    def _opened(cls, folder: Path, binner: Binner) -> Store:
        written = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        if written["format"] != FORMAT:
            raise BrokenCache(f"its format is {written['format']}, and {FORMAT} is known")
        store = cls(folder, int(written["n_rows"]), is_temporary=False)
        store.facts = written["facts"]
        for name, facts in written["files"].items():
            path, shape, dtype = folder / f"{name}.bin", tuple(facts["shape"]), np.dtype(facts["dtype"])
            if dtype.hasobject or Path(name).name != name:
                raise BrokenCache(f"{FACTS} describes {name!r} as {facts['dtype']}")
            n_bytes = max(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize, 1)
            if not path.exists() or path.stat().st_size != n_bytes:
                raise BrokenCache(f"{path.name} is missing or has another length than {n_bytes} bytes")
            store._crcs[name] = crc_of(path)
            if store._crcs[name] != facts["crc"]:
                raise BrokenCache(f"{path.name} has another content than when it was written")
            store._arrays[name] = np.memmap(path, dtype=dtype, mode="r", shape=shape)
        store.binner = store._restored(binner)
        return store

    def _restored(self, binner: Binner) -> Binner:
        """The fitted binner: its parameters are those given, its bins those of the store."""
        for name in BINNER_ARRAYS:
            setattr(binner, name, np.array(self._arrays[f"binner{name}"]))
        binner.positions_ = joined([np.array(self._arrays["binnerpositions_"])])
        binner._edges = joined([binner._edges])
        binner.n_features_in_ = len(binner.n_bins_)
        names = self.facts["names"]
        binner.feature_names_in_ = None if names is None else tuple(names)
        binner.categories_ = {int(j): tuple(levels) for j, levels in self.facts["categories"].items()}
        return binner

    def array(self, name: str) -> np.ndarray | None:
        """An array by row, or None if the store has none of this name."""
        return self._arrays.get(name)

    def codes(self, first: int, stop: int, n_features: int | None = None) -> np.ndarray:
        """The codes of a part, by feature."""
        n_features = self.binner.n_features_in_ if n_features is None else n_features
        return self._arrays["codes"][first * n_features : stop * n_features].reshape(n_features, stop - first)

    def design(self, first: int, stop: int, weights_kind: str, sample_weight: np.ndarray | None = None) -> BinnedMatrix:
        """The binned matrix of a part; without weights its shares, which nobody may rely on, are uniform."""
        own, codes = self.binner, self.codes(first, stop)
        bins = own.offsets_, own.missing_, own.positions_
        if sample_weight is not None:
            return BinnedMatrix._of_codes(codes, *bins, sample_weight).with_weights(weights_kind)  # type: ignore[arg-type]
        shares = np.repeat(1.0 / own.n_bins_, own.n_bins_)
        columns = np.arange(own.n_features_in_, dtype=np.int64)[:, None]
        return BinnedMatrix._from_valid(codes, *bins, columns, weights_kind, shares)

    @property
    def scratch(self) -> Path:
        """A temporary folder for vectors by row, beside the files of the store."""
        if self._scratch is None:
            self._scratch = Path(tempfile.mkdtemp(prefix="scratch-", dir=self.folder))
        return self._scratch

    def keep(self) -> None:
        """Write down what was added since the store was finished, if it stays."""
        if not self.is_temporary:
            self._write_facts()

    def discard(self, name: str) -> None:
        """Remove an array that was not filled."""
        if self._arrays.pop(name, None) is not None:
            (self.folder / f"{name}.bin").unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the files, and remove them if they are temporary."""
        self._arrays.clear()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
        if self.is_temporary:
            shutil.rmtree(self.folder, ignore_errors=True)


class StoredColumns(Table):
    """The values of a part's rows, as far as the store has them; `load` gets those of further columns."""

    def __init__(self, store: Store, first: int, stop: int, load: Any):
        self.n_rows, self.n_features = stop - first, store.binner.n_features_in_
        self.names = store.binner.feature_names_in_
        self._store, self._rows, self._load = store, slice(first, stop), load

    def need(self, columns: Iterable[int]) -> None:
        """Get the values of all these columns in one reading of the source."""
        absent = [j for j in columns if self._store.array(name_of_values(j)) is None]
        if absent:
            self._load(absent)

    def _column(self, j, rows):
        self.need([j])
        own = self._store.array(name_of_values(j))[self._rows]
        return np.asarray(own if rows is None else own[rows])

    def levels(self, j):
        raise TypeError(f"column {j} is in a store, which keeps the codes of categories and not their levels")


def name_of_values(j: int) -> str:
    return f"x{j}"


def reserve(path: Path, n_bytes: int) -> None:
    """Make a file of n_bytes whose place is reserved."""
    with open(path, "wb") as file:
        reserve_room(file, n_bytes)


def reserve_room(file: Any, n_bytes: int) -> None:
    """Reserve the place of a new file: writing to a mapped one on a full disk would end the process."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file.fileno(), 0, n_bytes)
            return
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
    zeros = bytes(BYTES_PER_CHECK)
    for start in range(0, n_bytes, len(zeros)):
        file.write(zeros[: n_bytes - start])
    file.flush()


def crc_of(path: Path) -> int:
    """The checksum of a file."""
    crc = 0
    with open(path, "rb") as file:
        while chunk := file.read(BYTES_PER_CHECK):
            crc = zlib.crc32(chunk, crc)
    return crc


def fingerprint_of(facts: Mapping[str, Any]) -> str:
    """A short name for anything that JSON can say, and for arrays in it.

    Examples
    --------
    >>> from rbr.data.store import fingerprint_of
    >>> len(fingerprint_of({"a": 1})), fingerprint_of({"a": 1}) == fingerprint_of({"a": 2})
    (24, False)
    """
    text = json.dumps(facts, sort_keys=True, default=_plain)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state
    if isinstance(value, np.random.RandomState):
        return str(value.get_state(legacy=False))
    if isinstance(value, (Sequence, set, frozenset)):
        return sorted(value) if isinstance(value, (set, frozenset)) else list(value)
    return repr(value)
