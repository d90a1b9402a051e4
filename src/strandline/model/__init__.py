"""Define the values of the Dataflow model that all layers share: windows, triggers, watermarks, aggregates, panes."""
