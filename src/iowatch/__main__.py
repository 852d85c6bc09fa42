"""`python -m iowatch`."""

from iowatch.cli.main import main

main()
