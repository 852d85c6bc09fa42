"""Sessions: planning and running a suite, A/B runs, the verdict, and results measured elsewhere."""
