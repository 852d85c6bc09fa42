"""What several experiments share: pairs of builds, builds of commits, hybrids of stacks, counters."""
