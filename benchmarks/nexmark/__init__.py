"""Nexmark: people, auctions and bids in one log, out of order and partly late; the queries; the check."""
