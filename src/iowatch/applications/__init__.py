"""What stands on the suite for the I/O of applications: each folder has all of one capability."""
