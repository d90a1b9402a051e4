"""Play stories with every key salted: two steps in a row, as the plan of salted keys has them."""

from strandline.execution.story_player import KernelPlayer
from strandline.plan.nodes import Stateless, over
from strandline.plan.operators.contract import Accepted
from strandline.plan.salting import SALT, columns_read, in_two
from strandline.plan.stateless_operations import Gather, Spread
from strandline.plan.stories.story_pipeline import KEY, StoryPipeline, written

SALTS = 3


def salted_player(pipeline: StoryPipeline) -> KernelPlayer:
    """Return a player that treats every key as hot."""
    step, accepted = pipeline.step, frozenset(Accepted)
    (of,) = pipeline.nodes[0].inputs
    columns = tuple((name, None) for name in columns_read(step) if name != KEY)
    hold, aggregate = in_two(step)
    spread = Stateless(of, Spread((KEY,), SALTS, 1, columns, step))
    held = over(spread, (KEY, SALT), hold, accepted=accepted)
    whole = over(Stateless(held, Gather(columns)), (KEY,), aggregate, accepted=accepted)
    return KernelPlayer(StoryPipeline(written(whole, ""), fires_per_element=pipeline.fires_per_element))
