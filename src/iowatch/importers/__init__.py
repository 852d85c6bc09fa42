"""Tables of other systems, one folder each: their forms join `iowatch import` by a registry (iowatch.core.plugins)."""
