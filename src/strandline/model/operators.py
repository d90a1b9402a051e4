"""The definitions of keyed operators: a closed union that players match."""

from strandline.model.deduplicate import Deduplicate
from strandline.model.steps import WindowedStep

Operator = WindowedStep | Deduplicate
