"""Nexmark: people, auctions and bids in one log, out of order and partly late; what is asked of it; and the judge."""
