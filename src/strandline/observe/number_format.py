"""Format numbers for people."""

from strandline.model.counts import Counts


def duration(seconds: float) -> str:
    """Format a duration with a suitable unit."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if abs(seconds) >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s" if abs(seconds) >= 1 else f"{seconds * 1000:.0f} ms"


def count(many: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e4)):
        if many >= size:
            return f"{many / (1e3 if unit == 'k' else size):.1f} {unit}"
    return f"{many:.0f}" if many >= 10 or many == int(many) else f"{many:.1f}"


def bytes_of(size: int) -> str:
    for unit, many in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= many:
            return f"{size / many:.1f} {unit}"
    return f"{size} B"


def conserved(counts: Counts) -> str:
    """Format the counts of elements and their outcomes as a sum."""
    further = f" + {counts.again} to further steps" if counts.again else ""
    filtered = f" + {counts.filtered} filtered" if counts.filtered else ""
    outcomes = f"{counts.contributed} contributed + {counts.late} late + {counts.dead} dead letters{filtered}"
    overflow = f"; {counts.overflow} overflowed sums are null" if counts.overflow else ""
    unmatched = f"; {counts.unmatched} without a match in a lookup table" if counts.unmatched else ""
    return f"{counts.read} in{further} = {outcomes}{overflow}{unmatched}"
