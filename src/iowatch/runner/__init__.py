"""Running a suite: plan, start ReFrame, take in each case as it ends, close the session."""
