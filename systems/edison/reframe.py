"""ReFrame configuration for dry runs: the machine is known from a year of results only (system.yaml)."""

from iowatch.site.reframe_config import published_configuration

# IOR was among the year's benchmarks ([lockwood2018]); neither scheduler nor launcher are in its results.
site_configuration = published_configuration("edison", scheduler="local", launcher="local", features=["ior"])
