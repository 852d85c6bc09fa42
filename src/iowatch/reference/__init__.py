"""References: the figures that papers published, and the accepted bandwidths of each system with provenance."""
