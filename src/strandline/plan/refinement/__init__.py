"""Follow how rows refine earlier rows, from keyed steps to tables: what is inherited, refused, and warned about."""
